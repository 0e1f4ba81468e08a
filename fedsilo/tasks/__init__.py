"""Learning tasks say what a target is, the loss, the predictions and their scores. Torch-free until they compute."""
