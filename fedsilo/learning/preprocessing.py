"""Imputation and standardisation as the first layer of a model, so that whoever uses it feeds raw values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.learning.preprocessing_numbers import NAMES


class Preprocessing(nn.Module):
    """(x - mean) / scale of each feature, missing values filled in first: (n, F, ...) -> the same.

    It takes float32 or float64 and computes in float64, for a feature far from zero has little left in float32 once
    its mean is taken off; what comes of it has the type of the network. Its numbers are no part of the model's state:
    they are the job's, never trained or averaged.

    :param numbers: `fill`, `mean` and `scale`, each (F,), float64.
    """

    fill: Tensor
    mean: Tensor
    scale: Tensor
    typed: Tensor

    def __init__(self, numbers: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        for name in NAMES:
            self.register_buffer(name, torch.tensor(numbers[name], dtype=torch.float64), persistent=False)
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
