"""New linear classifiers at the aggregator, as PyTorch initialises them."""

from __future__ import annotations

from fedsilo.methods.state import Tree


def new_classifier(width: int, classes: int, seed: int, bias: bool = True) -> Tree:
    """`classifier.weight` (classes, width) and, if asked for, `classifier.bias` (classes,); the same for a seed."""
    import torch

    from fedsilo.learning.models import to_tree

    with torch.random.fork_rng([]):
        # Not torch.manual_seed, which would seed the GPU's generators too.
        torch.default_generator.manual_seed(seed)
        layer = torch.nn.Linear(width, classes, bias=bias)
    return {f"classifier.{name}": array for name, array in to_tree(layer).items()}
