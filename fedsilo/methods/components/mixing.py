"""Mixup trains on batches that are mixed with themselves in another order.

Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import Field

from fedsilo.methods.interface import MethodConfig, SiloContext, SiloTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsilo.learning.training import Loss


class MixupConfig(MethodConfig):
    """Settings of mixup, the distribution of the mixed part."""

    alpha: float = Field(
        default=0.2,
        ge=0.01,
        le=100,
        description="The mixed part is drawn from Beta(alpha, alpha) [paper: 0.1 to 0.4; FedBR: 0.2].",
    )


class MixedBatch(NamedTuple):
    """A batch of mixtures: l of each example and 1 - l of another.

    :ivar inputs: (B, *input shape).
    :ivar part: l.
    :ivar labels: classes (B,) of the examples themselves; `others`: of those that they are mixed with; None where
        nothing is mixed.
    """

    inputs: Tensor
    part: float
    labels: Tensor
    others: Tensor | None

    def mixed_term(self, term: Callable[[Tensor], Tensor]) -> Tensor:
        """l term(y) + (1 - l) term(y'), of a term of the loss that depends on the examples' classes."""
        own = term(self.labels)
        return own if self.others is None else self.part * own + (1 - self.part) * term(self.others)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """l CE(f(x~), y) + (1 - l) CE(f(x~), y')."""
        from torch.nn import functional

        return self.mixed_term(lambda labels: functional.cross_entropy(logits, labels))


Mix = Callable[["Tensor", "Tensor"], MixedBatch]
"""(inputs, classes) of a batch -> the batch mixed with itself in another order."""


def unmixed_batch(features: Tensor, labels: Tensor) -> MixedBatch:
    """The batch as it is."""
    return MixedBatch(features, 1.0, labels, None)


def mixing(silo: SiloContext, task: SiloTask, alpha: float) -> Mix:
    """x~ = l x + (1 - l) x', where (x', y') is the batch in another order.

    Order and l ~ Beta(alpha, alpha) are new for each batch, from the silo's seed of the round. A raw value that is
    missing in one of two examples is missing in their mixture.
    """
    import torch

    rng = np.random.default_rng(silo.seed("mixup", task.phase, task.round))

    def mix(features: Tensor, labels: Tensor) -> MixedBatch:
        part = float(rng.beta(alpha, alpha))
        order = torch.from_numpy(rng.permutation(len(labels))).to(labels.device)
        return MixedBatch(part * features + (1 - part) * features[order], part, labels, labels[order])

    return mix


def mixup_loss(silo: SiloContext, task: SiloTask, alpha: float) -> Loss:
    """The cross-entropy of mixtures, each batch mixed with itself."""
    mix = mixing(silo, task, alpha)

    def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        mixed = mix(features, labels)
        return mixed.cross_entropy(model(mixed.inputs))

    return loss
