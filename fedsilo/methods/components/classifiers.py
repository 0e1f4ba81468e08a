"""New layers at the aggregator, as PyTorch initialises them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from fedsilo.learning.models import to_tree
from fedsilo.methods.state import Tree


def new_classifier(width: int, classes: int, seed: int, bias: bool = True) -> Tree:
    """`classifier.weight` (classes, width) and, if asked for, `classifier.bias` (classes,); the same for a seed."""
    layer = initial_tensors(lambda: nn.Linear(width, classes, bias=bias), seed)
    return {f"classifier.{name}": array for name, array in layer.items()}


def initial_tensors(make: Callable[[], nn.Module], seed: int) -> Tree:
    """The initial tensors of a module, drawn from the seed and from no other generator."""
    with torch.random.fork_rng([]):
        # Not torch.manual_seed, which would seed the GPU's generators too.
        torch.default_generator.manual_seed(seed)
        return to_tree(make())
