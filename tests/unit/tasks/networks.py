"""Networks of a job's own for the tests of this folder."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import override


class PlainNetwork(nn.Module):
    """A network without encoder and classifier: (n, features) -> (n, outputs)."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(input_shape[0] * 64, 8), nn.Tanh(), nn.Linear(8, outputs)
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def plain_network(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return PlainNetwork(input_shape, outputs)


def too_wide(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return PlainNetwork(input_shape, outputs + 1)
