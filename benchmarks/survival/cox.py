"""Cox's proportional hazards as a learning task, its network, and Harrell's index of concordance.

Cox, "Regression Models and Life-Tables", 1972: the partial likelihood compares each observed event with those who were
at risk then, here those of the same batch. Harrell et al., "Evaluating the Yield of Medical Tests", 1982: the share of
comparable pairs of patients that the model orders as their times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo import LearningTask
from fedsilo.errors import DataInvalid


class CoxTask(LearningTask):
    """The logarithm of a patient's hazard; a target is (event, days), the event 1 where it was observed."""

    summary = "the logarithm of the hazard"
    target = "(event, days): whether an event was observed, and when it or the last observation was"

    @property
    @override
    def outputs(self) -> int:
        return 1

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        if values.ndim != 2 or values.shape[1] != 2:
            raise DataInvalid(f"targets of shape {list(values.shape)}; give (event, days) for each patient")
        return values.astype(np.float32)

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return partial_likelihood(outputs, targets).mean()

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        return {"loss": partial_likelihood(outputs, targets)}


def partial_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """Negative logarithm of each patient's factor of the partial likelihood, 0 without an event, (n,).

    :param outputs: logarithms of hazards, (n, 1).
    :param targets: (event, days), (n, 2). Of equal days, the order is that of the batch.
    """
    order = torch.argsort(targets[:, 1], descending=True, stable=True)
    hazards, events = outputs[order, 0], targets[order, 0]
    factors = (torch.logcumsumexp(hazards, 0) - hazards) * events
    return factors[torch.argsort(order)]


class Concordance:
    """Harrell's index of concordance over all examples that are scored together."""

    def __init__(self) -> None:
        self._predictions: list[Tensor] = []
        self._targets: list[Tensor] = []

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Take the predictions of one more batch."""
        self._predictions.append(predictions.detach().cpu())
        self._targets.append(targets.detach().cpu())

    def compute(self) -> float:
        """The index of all examples; 0.5 is chance, NaN without a pair that can be compared."""
        hazards = torch.cat(self._predictions)[:, 0].double().numpy()
        events, days = torch.cat(self._targets).double().numpy().T
        return concordance(hazards, events, days)


def concordance(hazards: np.ndarray, events: np.ndarray, days: np.ndarray) -> float:
    """Share of comparable pairs in which who had the event first has the higher hazard; equal hazards count half.

    Two patients can be compared if the shorter time is that of an event, or of equal times only one is.

    :param hazards: or their logarithms, (n,).
    :param events: 1 where the event was observed, else 0, (n,).
    :param days: until the event or the last observation, (n,).
    """
    earlier = (days[:, None] < days) | ((days[:, None] == days) & (events[:, None] > events))
    comparable = earlier & (events[:, None] == 1)
    ordered = (hazards[:, None] > hazards) + 0.5 * (hazards[:, None] == hazards)
    pairs = comparable.sum()
    return float((ordered * comparable).sum() / pairs) if pairs else float("nan")


def linear_hazard(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The network of Cox's model, which has one weight for each covariate."""
    return nn.Linear(input_shape[0], outputs)
