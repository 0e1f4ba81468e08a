"""New layers at the aggregator, as PyTorch initialises them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsilo.methods.state import Tree

if TYPE_CHECKING:
    from torch import nn


def new_classifier(width: int, classes: int, seed: int, bias: bool = True) -> Tree:
    """`classifier.weight` (classes, width) and, if asked for, `classifier.bias` (classes,); the same for a seed."""
    from torch import nn

    layer = initialised(lambda: nn.Linear(width, classes, bias=bias), seed)
    return {f"classifier.{name}": array for name, array in layer.items()}


def new_projection(width: int, seed: int) -> Tree:
    """The tensors of FedBR's projection, under their names in it; the same for a seed."""
    from fedsilo.learning.bias_reduction import projection

    return initialised(lambda: projection(width), seed)


def initialised(make: Callable[[], nn.Module], seed: int) -> Tree:
    """The initial tensors of a module, drawn from the seed and from no other generator."""
    import torch

    from fedsilo.learning.models import to_tree

    with torch.random.fork_rng([]):
        # Not torch.manual_seed, which would seed the GPU's generators too.
        torch.default_generator.manual_seed(seed)
        return to_tree(make())
