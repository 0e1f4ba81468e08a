"""A robust rule in the place of the mean of models."""
