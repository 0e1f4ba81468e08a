"""The trainer has the data and the GPU, no key and no network."""
