"""U-Net predicts classes of pixels from features of several resolutions.

Ronneberger, Fischer, Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015: padded
convolutions, so that the output has the image's sides, and GroupNorm (Wu and He, ECCV 2018), since statistics of
batches differ between silos.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.learning.catalogue import UNetConfig
from fedsilo.tasks.interface import LearningTask


class UNet(nn.Module):
    """Images (n, channels, height, width) -> logits (n, classes, height, width)."""

    def __init__(self, channels: int, classes: int, config: UNetConfig) -> None:
        super().__init__()
        widths = [config.width * 2**level for level in range(config.levels + 1)]
        self.down = nn.ModuleList(
            _block(before, after) for before, after in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, stride=2)
            for above, below in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.merge = nn.ModuleList(_block(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv2d(config.width, classes, 1)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) -> (n, classes, height, width); sides need not be even."""
        across: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            across.append(x)
        across.pop()
        for enlarge, merge in zip(self.up, self.merge, strict=True):
            beside = across.pop()
            x = enlarge(x)
            # An odd side has lost a row in the pooling below.
            missing = [beside.shape[-1] - x.shape[-1], beside.shape[-2] - x.shape[-2]]
            x = merge(torch.cat([beside, functional.pad(x, [0, missing[0], 0, missing[1]])], dim=1))
        logits: Tensor = self.head(x)
        return logits


def unet(task: LearningTask, config: UNetConfig) -> UNet:
    """The network for a task's images and classes."""
    return UNet(task.data.input_shape[0], task.outputs, config)


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    groups = 8 if channels_out % 8 == 0 else 1
    layers: list[nn.Module] = []
    for channels in (channels_in, channels_out):
        layers += [
            nn.Conv2d(channels, channels_out, 3, padding=1),
            nn.GroupNorm(groups, channels_out),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)
