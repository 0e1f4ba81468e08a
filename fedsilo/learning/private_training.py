"""Local training by DP-SGD: each example's gradient is clipped, and the sum of a sample of them gets noise.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1. A batch is a Poisson sample: every
example, or person with one example, is in it with probability B / n, independently of all others. What the optimiser
does with the noisy gradient (momentum, weight decay, clipping) reveals nothing more. Opacus computes the gradients of
single examples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.divergence import require_finite
from fedsilo.learning.examples import Examples
from fedsilo.learning.gradients import Loss, clear
from fedsilo.learning.poisson_sampling import PoissonSampling
from fedsilo.learning.training import LocalTraining, TrainingReport, optimizer_of, seeded, steps_of
from fedsilo.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class ExamplePrivacy:
    """What one example may do to a step; of a person there is at most one.

    :param mechanism: how many steps there are, of which samples, and with how much noise: what is charged for them.
    :param max_norm: C, the L2 norm that each example's gradient is clipped to.
    :param random: of samples and noise; nobody else can draw from it.
    """

    mechanism: Mechanism
    max_norm: float
    random: np.random.Generator

    @property
    def deviation(self) -> float:
        """Of the noise in the sum of a sample's gradients, sigma C."""
        return self.mechanism.noise_multiplier * self.max_norm


def fit_privately(
    model: nn.Module, examples: Examples, plan: LocalTraining, privacy: ExamplePrivacy, loss: Loss
) -> TrainingReport:
    """Train in place, as `fit`, with every step private.

    :param examples: with at least as many records as a batch has.
    :param plan: whose steps are those of the mechanism.
    :param loss: mean over the batch of what each example has by itself.
    :returns: as of `fit`; its losses are of the examples, so that they must not leave.
    :raises MethodError: the plan takes other steps; examples have no gradients of their own; training diverged.
    """
    sampled, batch, mechanism = PoissonSampling.of(examples), plan.batch_size, privacy.mechanism
    n, steps = len(sampled), mechanism.times
    _require_planned(n, plan, mechanism)
    _require_single_gradients(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, view = optimizer_of(model, trained, plan), plan.views()
    losses = torch.zeros(steps, dtype=torch.float64)
    model.train()
    single = _SingleGradients(model, trained, privacy.max_norm, loss)
    try:
        with seeded(plan.seed, examples.labels.device), warnings.catch_warnings():
            # Opacus hooks the first layer too, whose inputs are the examples, of which no gradient is wanted.
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            for step in range(steps):
                index = torch.from_numpy(sampled.draw(mechanism.sampling, privacy.random))
                sums = [torch.zeros_like(parameter) for parameter in trained]
                for part in torch.split(index.to(examples.labels.device), batch) if len(index) else ():
                    features, labels = examples.batch(part)
                    view_of_part = view(features, slice(0, len(part)), len(part))
                    losses[step] += single.add(sums, view_of_part, labels)
                for parameter, total in zip(trained, sums, strict=True):
                    noise = privacy.random.normal(0, privacy.deviation, total.shape)
                    parameter.grad = (total + torch.from_numpy(noise).to(total)) / batch
                optimizer.step()
    finally:
        single.close()
        clear(model.parameters())
    losses /= batch
    require_finite(losses, model, plan.lr)
    if plan.kept is not None:
        plan.kept.replace(optimizer.state())
    last = losses[-math.ceil(n / batch) :]
    return TrainingReport(steps, float(last.mean()), len(examples), float(losses[0]))


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


class _SingleGradients:
    """Gradients of single examples, clipped and summed, while it is open."""

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter], norm: float, loss: Loss) -> None:
        from opacus import GradSampleModule

        self._trained, self._norm, self._loss = trained, norm, loss
        self._module = GradSampleModule(model, loss_reduction="sum")

    def add(self, sums: Sequence[Tensor], features: Tensor, labels: Tensor) -> float:
        """Add sum_i min(1, C / |g_i|) g_i to the sums; the loss, summed over the examples."""
        clear(self._trained)
        value = self._loss(self._module, features, labels) * len(labels)
        torch.autograd.backward(value)
        gradients = [_of_examples(parameter, len(labels)) for parameter in self._trained]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factors = (self._norm / norms.clamp(min=self._norm)).nan_to_num(0.0)
        for total, gradient in zip(sums, gradients, strict=True):
            total += torch.einsum("i,i...->...", factors, gradient.nan_to_num(0.0, 0.0, 0.0))
        for parameter in self._trained:
            parameter.grad_sample = None  # type: ignore[attr-defined]
        return float(value.detach())

    def close(self) -> None:
        """Leave the network as it was."""
        self._module.remove_hooks()
        for parameter in self._trained:
            if hasattr(parameter, "grad_sample"):
                del parameter.grad_sample


def _of_examples(parameter: nn.Parameter, n: int) -> Tensor:
    """(n, *shape) gradients of each example; zeros of a parameter that has no part in the loss."""
    found: Tensor | None = getattr(parameter, "grad_sample", None)
    return torch.zeros(n, *parameter.shape, device=parameter.device) if found is None else found


def _require_single_gradients(model: nn.Module) -> None:
    """Refuse what mixes the examples of a batch, or what Opacus cannot take apart.

    :raises MethodError: naming the module and what may stand there.
    """
    for name, module in mixing(model):
        raise MethodError(
            f"spec.privacy.differentialPrivacy: module {name} ({type(module).__name__}) normalises over the batch, so "
            "that no example has a gradient of its own; replace it by GroupNorm, or use a network without it"
        )
    from opacus.validators import ModuleValidator

    if problems := ModuleValidator.validate(model, strict=False):
        raise MethodError(
            f"spec.privacy.differentialPrivacy: the model cannot be trained by DP-SGD: {problems[0]}"
        )


def mixing(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that normalise over the batch, with their names."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            yield name, module
