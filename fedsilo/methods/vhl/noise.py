"""Virtual examples are labelled noise that is the same in every silo of a job, and that says nothing about any."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

COARSE_SIDE = 4
"""Points along each side of the noise that an image is made of."""

BETWEEN_CLASSES = 2.0
"""Spread of the classes' centres, in that of the examples of a class round theirs."""

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


class VirtualExamples:
    """Examples of each class: sigmoid(c + e), a class's centre c and noise e, both Gaussian.

    Those of images are drawn on a coarse grid and enlarged, so that neighbouring points are alike, as in the paper's
    images of random generators. Values are from 0 to 1.

    :param shape: of an example's features; beyond the first dimension they are points in space.
    :param per_class: examples of a class; their noise is the same in each class.
    """

    def __init__(self, shape: Sequence[int], classes: int, per_class: int, seed: int) -> None:
        self._shape = tuple(shape)
        grid = (self._shape[0], *(min(size, COARSE_SIDE) for size in self._shape[1:]))
        generator = torch.Generator().manual_seed(seed)
        self._centres = BETWEEN_CLASSES * torch.randn(classes, *grid, generator=generator)
        self._noise = torch.randn(per_class, *grid, generator=generator)

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(n, *shape) and (n,): examples of classes that are all as likely."""
        labels = torch.randint(len(self._centres), (n,), generator=generator)
        which = torch.randint(len(self._noise), (n,), generator=generator)
        return self.of(labels, which), labels

    def of(self, labels: Tensor, which: Tensor) -> Tensor:
        """Virtual examples (n, *shape) of these classes and these numbers, from 0 to `per_class` - 1."""
        coarse = (self._centres[labels] + self._noise[which]).sigmoid()
        if len(self._shape) == 1:
            return coarse
        space = self._shape[1:]
        return functional.interpolate(coarse, size=space, mode=MODES[len(space)], align_corners=False)
