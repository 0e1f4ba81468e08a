"""Random crops, flips and rotations of the images that a silo learns from."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.api.training import AugmentationSpec
from fedsilo.learning.seeding import derive_seed


class Augmentation:
    """What `spec.training.augmentation` asks for, batch after batch.

    What is drawn comes from a CPU generator of its own, so that it is the same on every device.

    :param seed: of the local training.
    """

    def __init__(self, spec: AugmentationSpec, seed: int) -> None:
        self._spec = spec
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation"))

    def __call__(self, images: Tensor, place: slice | None = None, batch: int | None = None) -> Tensor:
        """(B, channels, height, width) floats, changed; the batch itself stays as it is.

        :param place: of the images in their batch, for all of which is drawn; they are all of it by default.
        :param batch: size of the batch.
        """
        of_image = self._spec.per == "image"
        draws = (len(images) if batch is None else batch) if of_image else 1
        shown = place if place is not None and of_image else slice(None)
        if self._spec.crop:
            shifts = torch.randint(2 * self._spec.crop + 1, (draws, 2), generator=self._generator)[shown]
            images = _cropped_images(images, shifts, self._spec.crop, self._spec.border)
        if self._spec.flip:
            mirrored = torch.rand(draws, generator=self._generator)[shown] < 0.5
            images = torch.where(mirrored.to(images.device)[:, None, None, None], images.flip(3), images)
        if self._spec.rotation:
            turns = 2 * torch.rand(draws, generator=self._generator)[shown] - 1
            if not len(images):
                return images  # PyTorch makes no grid of nothing
            images = _rotated_images(images, turns * math.radians(self._spec.rotation))
        return images


def _cropped_images(images: Tensor, shifts: Tensor, width: int, border: str) -> Tensor:
    """A crop of the old size, from (row, column) `shifts` of the image with a border of this width."""
    bordered = functional.pad(images, [width] * 4, mode="reflect" if border == "reflect" else "constant")
    shifts = shifts.to(images.device)
    rows = shifts[:, :1] + torch.arange(images.shape[2], device=images.device)
    columns = shifts[:, 1:] + torch.arange(images.shape[3], device=images.device)
    which = torch.arange(len(images), device=images.device)[:, None, None]
    # Indices around the slice put the channels last.
    return bordered[which, :, rows[:, :, None], columns[:, None, :]].movedim(3, 1)


def _rotated_images(images: Tensor, angles: Tensor) -> Tensor:
    """About the centre, bilinear, with zeros where nothing was."""
    angles = angles.to(images)
    aspect = images.shape[2] / images.shape[3]
    sine, cosine, none = angles.sin(), angles.cos(), torch.zeros_like(angles)
    # Coordinates go from -1 to 1 along both sides, however long these are.
    matrix = torch.stack([cosine, -sine * aspect, none, sine / aspect, cosine, none], dim=1).reshape(-1, 2, 3)
    grid = functional.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)
