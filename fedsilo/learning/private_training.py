"""Local training by DP-SGD: each example's gradient is clipped, and the sum of a sample of them gets noise.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1. A batch is a Poisson sample: every
example, or person with one example, is in it with probability B / n, independently of all others. Of a person in
the batch one example is drawn, each with the same probability, so that the person adds one gradient to the step,
however many examples there are. What the optimiser does with the noisy gradient (momentum, weight decay, clipping)
reveals nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.divergence import require_finite
from fedsilo.learning.examples import Examples
from fedsilo.learning.gradients import Loss
from fedsilo.learning.noise import KEY_BYTES, NoiseSource
from fedsilo.learning.single_gradients import TRIED_EXAMPLES, SingleGradients
from fedsilo.learning.training import LocalTraining, TrainingReport, optimizer_of, seeded_generators, steps_of
from fedsilo.privacy.mechanism import Mechanism

LARGEST_PART = 1.25
"""Most examples of a sample that are learned from at once, over the size of a batch: most samples have no more."""


@dataclass(frozen=True)
class ExamplePrivacy:
    """What one example may do to a step; of a person there is at most one.

    :param mechanism: how many steps there are, of which samples, and with how much noise: what is charged for them.
    :param max_norm: C, the L2 norm that each example's gradient is clipped to.
    :param random: of samples and of the key of the noise; nobody else can draw from it.
    """

    mechanism: Mechanism
    max_norm: float
    random: np.random.Generator

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in the sum of a sample's gradients, sigma C."""
        return self.mechanism.noise_multiplier * self.max_norm


def fit_privately(
    model: nn.Module, examples: Examples, plan: LocalTraining, privacy: ExamplePrivacy, loss: Loss
) -> TrainingReport:
    """Train in place, as `fit`, with every step private; buffers stay as they were.

    :param examples: with at least as many records as a batch has.
    :param plan: whose steps are those of the mechanism.
    :param loss: mean over the batch of what each example has by itself.
    :returns: as of `fit`; its losses are of the examples, so that they must not leave.
    :raises MethodError: the plan takes other steps, examples see each other, training diverged.
    """
    sampled, mechanism = PoissonSampling.of(examples), privacy.mechanism
    n = len(sampled)
    _require_planned(n, plan, mechanism)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, view = optimizer_of(model, trained, plan), plan.views()
    losses, taken = torch.zeros(mechanism.times, dtype=torch.float64), 0
    model.train()
    device = examples.labels.device
    noise = NoiseSource(privacy.random.bytes(KEY_BYTES), privacy.deviation)
    sums = [torch.zeros(each.shape, dtype=_summed_as(each), device=each.device) for each in trained]
    with seeded_generators(plan.seed, device), SingleGradients(model, trained, loss) as single:
        single.choose(*examples.batch(torch.arange(min(TRIED_EXAMPLES, len(examples)), device=device)))
        for step in range(mechanism.times):
            index = torch.from_numpy(sampled.draw(mechanism.sampling, privacy.random)).to(device)
            torch._foreach_zero_(sums)
            parts = math.ceil(len(index) / (LARGEST_PART * plan.batch_size))
            for part in index.chunk(parts) if parts else ():
                features, labels = examples.batch(part)
                features = view(features, slice(0, len(part)), len(part))
                losses[step] += single.add_clipped(sums, features, labels, privacy.max_norm)
            _set_noisy(trained, sums, plan.batch_size, noise)
            taken += 1
            optimizer.step()
    losses /= plan.batch_size
    require_finite(losses, model, plan.lr)
    if plan.kept is not None:
        plan.kept.replace(optimizer.state())
    last = losses[-math.ceil(n / plan.batch_size) :]
    return TrainingReport(taken, float(last.mean()), len(examples), float(losses[0]))


def _require_planned(records: int, plan: LocalTraining, mechanism: Mechanism) -> None:
    """Refuse a plan that is not what is charged.

    :raises MethodError: other steps, or samples of another size.
    """
    _, steps = steps_of(records, plan, False)
    if (steps, plan.batch_size / records) != (mechanism.times, mechanism.sampling):
        raise MethodError(
            f"spec.privacy.differentialPrivacy: the method plans {steps} steps of {plan.batch_size} out of {records} "
            f"records, and declares {mechanism.times} steps that sample each with probability "
            f"{mechanism.sampling:.4g}, by which epsilon is reckoned; have its local_steps declare the plan that its "
            "silos train by"
        )


def _summed_as(parameter: nn.Parameter) -> torch.dtype:
    """At least single precision: in half precision a sum is rounded by more than one example may add."""
    return torch.promote_types(parameter.dtype, torch.float32)


def _set_noisy(
    trained: Sequence[nn.Parameter], sums: Sequence[Tensor], batch: int, noise: NoiseSource
) -> None:
    """Give each parameter the noisy sum over the batch's size as its gradient; noise is added in double precision.

    Piece by piece and in place, so that neither noise nor sums in double precision go to memory.
    """
    for parameter, total in zip(trained, sums, strict=True):
        flat, start = total.view(-1), 0
        for drawn in noise.pieces(flat.numel()):
            piece, noisy = flat[start : start + drawn.numel()], drawn.numpy()
            # PyTorch takes longer to add numbers of two kinds.
            np.add(noisy, piece.cpu().numpy(), out=noisy)
            np.multiply(noisy, 1 / batch, out=noisy)
            piece.copy_(drawn)
            start += drawn.numel()
        parameter.grad = total.to(parameter.dtype)


@dataclass(frozen=True)
class PoissonSampling:
    """The records of some examples.

    :param order: (n,): places of the examples, those of one record after the other.
    :param starts: (records,): where in `order` each record begins.
    :param sizes: (records,): how many examples each has.
    """

    order: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, examples: Examples) -> Self:
        """Persons where the examples have them, otherwise the examples themselves."""
        if examples.persons is None:
            places = np.arange(len(examples))
            return cls(places, places, np.ones_like(places))
        _, starts, sizes = np.unique(np.sort(examples.persons), return_index=True, return_counts=True)
        return cls(np.argsort(examples.persons, kind="stable"), starts, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def draw(self, sampling: float, random: np.random.Generator) -> np.ndarray:
        """Places of a batch's examples.

        :param sampling: probability with which a record is in it.
        """
        records = np.flatnonzero(random.random(len(self)) < sampling)
        if len(self) == len(self.order):
            return np.asarray(self.order[records])
        return np.asarray(self.order[self.starts[records] + random.integers(0, self.sizes[records])])
