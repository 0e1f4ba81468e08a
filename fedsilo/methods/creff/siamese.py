"""Differentiable Siamese augmentation (DSA) of a draw of images: one change, the same for all of them.

Zhao, Bilen, "Dataset Condensation with Differentiable Siamese Augmentation", ICML 2021, Section 3.3; ranges as in the
released code of CReFF.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

SHIFT = 0.125
"""Largest shift, of the image's side."""

CUT_SHARE = 0.5
"""Side of what is cut out, of the image's."""

SCALE = 1.2
"""Largest factor between the old coordinates and the new; the smallest is its inverse."""

ANGLE = 15.0
"""Largest rotation, in degrees."""


def augmented_images(images: Tensor, seed: int) -> Tensor:
    """The images after one of the six changes, drawn from the seed, on whatever device they are.

    :param images: (n, channels, height, width), float.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = int(torch.randint(len(CHANGES), (1,), generator=generator))
    return CHANGES[chosen](images, torch.rand(3, generator=generator).tolist())


def color(images: Tensor, draws: Sequence[float]) -> Tensor:
    """Brightness by -0.5 to 0.5, then saturation times 0 to 2, then contrast times 0.5 to 1.5."""
    images = images + (draws[0] - 0.5)
    grey = images.mean(dim=1, keepdim=True)
    images = (images - grey) * (2 * draws[1]) + grey
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return (images - mean) * (draws[2] + 0.5) + mean


def crop(images: Tensor, draws: Sequence[float]) -> Tensor:
    """Shifted by up to an eighth of each side, with zeros where nothing was."""
    height, width = images.shape[2:]
    down, right = _rounded_number(height * SHIFT), _rounded_number(width * SHIFT)
    bordered = functional.pad(images, (right, right, down, down))
    top, left = _index_below(2 * down + 1, draws[0]), _index_below(2 * right + 1, draws[1])
    return bordered[:, :, top : top + height, left : left + width]


def cutout(images: Tensor, draws: Sequence[float]) -> Tensor:
    """A rectangle of half of each side set to zero, less where it goes over the edge."""
    keep = torch.ones(images.shape[2:], dtype=images.dtype, device=images.device)
    spans = []
    for side, draw in zip(images.shape[2:], draws, strict=False):
        size = _rounded_number(side * CUT_SHARE)
        begin = _index_below(side + 1 - size % 2, draw) - size // 2
        spans.append(slice(max(begin, 0), begin + size))
    keep[spans[0], spans[1]] = 0
    return images * keep


def flip(images: Tensor, draws: Sequence[float]) -> Tensor:
    """Left and right mirrored, with probability 1/2."""
    return images.flip(3) if draws[0] < 0.5 else images


def scale(images: Tensor, draws: Sequence[float]) -> Tensor:
    """Width and height each stretched or shrunk."""
    across, along = (1 / SCALE + draw * (SCALE - 1 / SCALE) for draw in draws[:2])
    return _warped_images(images, [[across, 0, 0], [0, along, 0]])


def rotate(images: Tensor, draws: Sequence[float]) -> Tensor:
    """About the centre, to either side."""
    angle = math.radians(ANGLE) * (2 * draws[0] - 1)
    sine, cosine = math.sin(angle), math.cos(angle)
    return _warped_images(images, [[cosine, -sine, 0], [sine, cosine, 0]])


CHANGES: tuple[Callable[[Tensor, Sequence[float]], Tensor], ...] = (color, crop, cutout, flip, scale, rotate)
"""Changes of which each draw gets one, with three numbers from 0 to 1 that say how much."""


def _warped_images(images: Tensor, matrix: list[list[float]]) -> Tensor:
    """Each new pixel from where the matrix, in coordinates from -1 to 1, says; bilinear, zeros outside."""
    matrices = torch.tensor(matrix, device=images.device, dtype=images.dtype).expand(len(images), 2, 3)
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def _rounded_number(number: float) -> int:
    return int(number + 0.5)


def _index_below(limit: int, draw: float) -> int:
    """A whole number from 0, smaller than the limit."""
    return min(int(draw * limit), limit - 1)
