"""Imputation and standardisation as the first layer of a model, so that whoever uses it feeds raw values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.learning.preprocessing_numbers import NAMES, TARGET_MEAN, TARGET_SCALE


class Preprocessing(nn.Module):
    """(x - mean) / scale of each feature, missing values filled in first: (n, F, ...) -> the same.

    It takes float32 or float64 and computes in float64, for a feature far from zero has little left in float32 once
    its mean is taken off; what comes of it has the type of the network. Its numbers are no part of the model's state:
    they are the job's, never trained or averaged.

    :param numbers: `fill`, `mean` and `scale`, each (F,), float64; and `TARGET_MEAN` and `TARGET_SCALE`, (outputs,),
        where a network that has learned standardised targets is to predict raw ones.
    """

    fill: Tensor
    mean: Tensor
    scale: Tensor
    typed: Tensor
    target_mean: Tensor | None
    target_scale: Tensor | None

    def __init__(self, numbers: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        for name in NAMES:
            self.register_buffer(name, torch.tensor(numbers[name], dtype=torch.float64), persistent=False)
        for buffer, name in (("target_mean", TARGET_MEAN), ("target_scale", TARGET_SCALE)):
            given = torch.tensor(numbers[name], dtype=torch.float64) if name in numbers else None
            self.register_buffer(buffer, given, persistent=False)
        # Empty: it becomes of the type that `Module.to` gives the network.
        self.register_buffer("typed", torch.empty(0), persistent=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, F, ...) -> (n, F, ...), of the network's type."""
        fill, mean, scale = (
            numbers.reshape(-1, *[1] * (x.dim() - 2)) for numbers in (self.fill, self.mean, self.scale)
        )
        values = x.double()
        values = torch.where(values.isnan(), fill, values)
        return ((values - mean) / scale).to(self.typed.dtype)

    def raw_outputs(self, outputs: Tensor) -> Tensor:
        """Predictions in the units of the targets, float64, where those were standardised; otherwise as they are."""
        if self.target_mean is None or self.target_scale is None:
            return outputs
        return outputs.double() * self.target_scale + self.target_mean


def standardised_targets(targets: Tensor, numbers: Mapping[str, np.ndarray]) -> Tensor:
    """Targets (n, outputs) as a network learns them, float32; as they are where the numbers have none of targets."""
    if TARGET_MEAN not in numbers:
        return targets
    mean, scale = (
        torch.tensor(numbers[name], dtype=torch.float64, device=targets.device)
        for name in (TARGET_MEAN, TARGET_SCALE)
    )
    return ((targets.double() - mean) / scale).float()


def without_targets(numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers of the features alone, with which a network gives what it has learned."""
    return {name: numbers[name] for name in NAMES}
