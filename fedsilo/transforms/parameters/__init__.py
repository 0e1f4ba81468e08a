"""Parts of a model: shared, frozen and local tensors."""
