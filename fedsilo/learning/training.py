"""Local training is one loop, with hooks where methods differ.

A method changes the loss (FedProx, MOON, distillation, restricted softmax), the gradient after the backward
pass (control variates), the parameters that learn, or the number of steps; the rest is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice, tee
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsilo.errors import DataInvalid, MethodError, PolicyRefused
from fedsilo.learning.divergence import require_finite
from fedsilo.learning.examples import Examples, batches, used_per_epoch
from fedsilo.learning.gradients import Gradients, Loss, clear, require_steps
from fedsilo.learning.models import Model, evaluating
from fedsilo.learning.optimizers import AdamOptimizer, MomentumOptimizer, Optimizer
from fedsilo.learning.plan import LocalTraining, learning_rate

__all__ = [
    "Correction",
    "Examples",
    "LocalTraining",
    "Loss",
    "TrainingReport",
    "batches",
    "cross_entropy_loss",
    "fit",
    "has_batch_norm",
    "learned_from",
    "learning_rate",
    "planned_steps",
    "recompute_statistics",
]

Correction = Callable[[nn.Module], None]
"""Changes the gradients of the module in place, or after a step its parameters."""


@dataclass(frozen=True)
class TrainingReport:
    """Outcome of local training by `fit`.

    :param steps: optimiser steps taken, less than planned where gradients in float16 overflowed.
    :param loss: mean over the samples of the last pass, as far as it went, each under the weights of its own step.
    :param examples: size of the training set.
    :param first_loss: of the first step, before the model moved.
    """

    steps: int
    loss: float
    examples: int
    first_loss: float


def cross_entropy_loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of the batch."""
    return functional.cross_entropy(model(features), labels)


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the network normalises over the batch, which a single sample does not define."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def planned_steps(model: nn.Module, examples: Examples, plan: LocalTraining) -> int:
    """Steps that `fit` would take.

    :raises DataInvalid: too few examples for a single step.
    """
    return steps_of(len(examples), plan, has_batch_norm(model))[1]


def learned_from(model: nn.Module, examples: Examples, plan: LocalTraining) -> Tensor:
    """Which examples the steps of `fit` see, (n,) bool, each as often as they please.

    :raises DataInvalid: too few examples for a single step.
    """
    skip_single = has_batch_norm(model)
    _, steps = steps_of(len(examples), plan, skip_single)
    seen = torch.zeros(len(examples), dtype=torch.bool, device=examples.labels.device)
    for index in islice(_order(examples, plan, skip_single), steps):
        seen[index] = True
    return seen


def recompute_statistics(model: nn.Module, examples: Examples, batch_size: int) -> None:
    """Replace BatchNorm's running statistics by the mean over the batches of one pass, in the given order.

    A last batch of one sample is left out, as in training; statistics stay as they were where no batch is left.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    used = used_per_epoch(len(examples), batch_size, skip_single=True)
    if not norms or used == 0 or batch_size == 1:
        return
    momenta = [norm.momentum for norm in norms]
    with evaluating(model), torch.no_grad():
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean of all batches
            norm.training = True
        order = torch.split(torch.arange(used, device=examples.labels.device), batch_size)
        with closing(examples.stream(order)) as stream:
            for _, features, _ in stream:
                model(features)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def fit(
    model: nn.Module,
    examples: Examples,
    plan: LocalTraining,
    *,
    loss: Loss = cross_entropy_loss,
    correct: Correction | None = None,
    after_clip: Correction | None = None,
    after_step: Correction | None = None,
    parameters: Iterable[nn.Parameter] | None = None,
) -> TrainingReport:
    """Train in place with an optimiser of its own, whose state starts empty unless the plan brings one.

    A network with BatchNorm skips a last batch of one sample, as NIID-Bench does, since the variance of one
    sample is not defined. The global random generators are left as they were, and no gradient is left behind.

    :param loss: loss of a batch; further terms added here pass through the momentum like the gradient itself.
    :param correct: called after every backward pass, before clipping and the step.
    :param after_clip: called after clipping, before the step: what it adds is not clipped, as weight decay is not.
    :param after_step: called after every step.
    :param parameters: what is trained; the whole model by default.
    :raises DataInvalid: too few examples for a single step.
    :raises MethodError: training diverged.
    """
    device = examples.labels.device
    trained = list(model.parameters() if parameters is None else parameters)
    optimizer = optimizer_of(model, trained, plan)
    skip_single = has_batch_norm(model)
    per_epoch, steps = steps_of(len(examples), plan, skip_single)
    order = _order(examples, plan, skip_single)
    losses, sizes = torch.empty(0), list[int]()
    # Both: trained parameters may lie outside the model, and parts of the model may be frozen.
    touched = list(dict.fromkeys([*model.parameters(), *trained]))
    model.train()
    view, group = plan.views(), plan.group
    dense = plan.reads_gradients or correct is not None or after_clip is not None
    gradients = Gradients(model, loss, plan, touched, skip_single, device, dense)
    group.broadcast_([*touched, *model.buffers()])
    wholes, ahead = tee(islice(order, steps))
    shares = (index[group.share(len(index), skip_single)] for index in ahead)
    with seeded_generators(plan.own_seed, device), closing(examples.stream(shares)) as stream:
        for step, (index, (_, features, labels)) in enumerate(zip(wholes, stream, strict=True)):
            features = view(features, group.share(len(index), skip_single), len(index))
            whole = labels if len(labels) == len(index) else examples.labels[index]
            value = gradients.of(features, labels, whole) if len(labels) else gradients.join_empty_batch()
            if correct is not None:
                correct(model)
            if plan.gradient_clip is not None:
                nn.utils.clip_grad_norm_(trained, plan.gradient_clip)
            if after_clip is not None:
                after_clip(model)
            if gradients.step(optimizer) and after_step is not None:
                after_step(model)
            if step == 0:
                # One tensor for all: the small ones of each step would keep apart what is free between them, and
                # memory would grow with every batch.
                losses = value.new_empty(steps)
            losses[step] = value
            sizes.append(len(index))
            if len(sizes) % per_epoch == 0 or len(sizes) == steps:
                # Once per pass and not per step: reading a value makes the CPU wait for the GPU.
                group.sum_losses(losses[(len(sizes) - 1) // per_epoch * per_epoch : len(sizes)])
                require_finite(losses[: len(sizes)], model, plan.lr)
    clear(touched)
    require_steps(gradients, steps)
    group.average_statistics(model)
    if plan.kept is not None:
        plan.kept.replace(optimizer.state().with_trees(gradients.state()))
    last = (steps - 1) // per_epoch * per_epoch
    mean = _weighted_mean(losses[last:], sizes[last:])
    return TrainingReport(gradients.steps, mean, len(examples), float(losses[0]))


def _order(examples: Examples, plan: LocalTraining, skip_single: bool) -> Iterator[Tensor]:
    """The places of each batch's examples, batch after batch without end."""
    return batches(
        len(examples),
        plan.batch_size,
        plan.seed,
        plan.shuffle,
        plan.drop_last,
        skip_single=skip_single,
        device=examples.labels.device,
    )


def optimizer_of(model: nn.Module, trained: list[nn.Parameter], plan: LocalTraining) -> Optimizer:
    """The plan's optimiser with the state that the plan brings; a parameter outside the model has its place as name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    named = {
        names.get(id(parameter), f"parameter-{place}"): parameter for place, parameter in enumerate(trained)
    }
    optimizer: Optimizer
    if plan.optimizer == "sgd":
        optimizer = MomentumOptimizer(named, plan.lr, plan.momentum, plan.weight_decay, plan.nesterov)
    else:
        decoupled = plan.optimizer == "adamw"
        optimizer = AdamOptimizer(
            named, plan.lr, plan.betas, plan.eps, plan.weight_decay, decoupled=decoupled
        )
    if plan.kept is not None:
        optimizer.load(plan.kept)
    return optimizer


def steps_of(n: int, plan: LocalTraining, skip_single: bool) -> tuple[int, int]:
    """Steps of one pass and of the whole plan.

    :raises DataInvalid: too few examples for a single step.
    :raises PolicyRefused: the steps would see fewer examples than they must.
    """
    used = used_per_epoch(n, plan.batch_size, drop_last=plan.drop_last, skip_single=skip_single)
    if used == 0 or (skip_single and plan.batch_size == 1):
        raise DataInvalid(
            f"training: examples: {n} in batches of {plan.batch_size}: not enough for one step"
            + (
                "; BatchNorm needs at least 2 samples in a batch: give this silo 2 training examples or more and "
                "spec.training.batchSize 2 or more, or use a network without BatchNorm"
                if skip_single
                else "; give this silo training data"
            )
        )
    per_epoch = math.ceil(used / plan.batch_size)
    steps = plan.steps.number(used)
    if steps < 1:
        raise MethodError(
            f"training: steps: {steps}: epochs and max_steps leave no step; ask for at least one"
        )
    seen = min(used, steps * plan.batch_size)
    if seen < plan.min_examples:
        raise PolicyRefused(
            f"training: examples: {steps} steps of {plan.batch_size} see {seen} of {n}, fewer than "
            f"minSamplesPerUpdate, {plan.min_examples}: nothing is sent; use larger batches or more steps, or give "
            "this silo more data"
        )
    return per_epoch, steps


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """What the network draws follows from the seed meanwhile; afterwards the generators are as before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _weighted_mean(losses: Tensor, sizes: list[int]) -> float:
    weights: Any = torch.tensor(sizes, dtype=torch.float64)
    return float((losses.double().cpu() @ weights / weights.sum()).item())
