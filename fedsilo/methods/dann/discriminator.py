"""The discriminator of DANN, which the aggregator begins and silos train."""

from __future__ import annotations

from torch import nn


def discriminator(width: int, hidden: int, silos: int) -> nn.Sequential:
    """The discriminator D with layers d -> hidden -> hidden -> silos, ReLU, and PyTorch's initial weights."""
    return nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, silos)
    )
