"""Local training: one loop, with hooks where methods differ.

A method changes the loss (FedProx, MOON, distillation, restricted softmax), the gradient after the backward
pass (control variates), the parameters that learn, or the number of steps; the rest is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, tee
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsilo.api.training import BETAS, EPS, AugmentationSpec, TrainingSpec
from fedsilo.errors import DataInvalid, MethodError, PolicyRefused
from fedsilo.learning.augmentation import Augmentation
from fedsilo.learning.data_parallel import ALONE, ProcessGroup
from fedsilo.learning.divergence import require_finite
from fedsilo.learning.examples import Examples, batches, used_per_epoch
from fedsilo.learning.gradients import Gradients, Loss, clear, require_steps
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.learning.models import Model, evaluating
from fedsilo.learning.optimizers import Adam, Momentum, Optimizer, OptimizerName, OptimizerState
from fedsilo.learning.seeding import derive_seed

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

View = Callable[[Tensor, slice, int], Tensor]
"""(features, their place in the batch, size of the batch) -> features as they are learned from."""

Correction = Callable[[nn.Module], None]
"""Changes the gradients of the module in place, or after a step its parameters."""


@dataclass(frozen=True)
class LocalTraining:
    """What one call of `fit` does.

    :param epochs: passes over the examples.
    :param lr: learning rate of this round, see `learning_rate`.
    :param optimizer: `torch.optim`'s of this name; `momentum` and `nesterov` are of sgd, `betas` and `eps` of adam(w).
    :param weight_decay: coefficient of the L2 term, added to the gradient before momentum; of adamw the decoupled one.
    :param kept: state that the optimiser begins with, and that is replaced by its last; None begins empty.
    :param gradient_clip: largest global L2 norm of the gradient; None does not clip.
    :param min_steps: take at least so many steps, passing over the examples again as needed.
    :param max_steps: take at most so many steps; wins over `epochs` and `min_steps`.
    :param min_examples: different examples that the steps must see, all together.
    :param accumulation: parts of about equal size that the batch of a step is computed in, their gradients added; the
        batch as a whole is what `batch_size` says.
    :param precision: bfloat16 and float16 compute forward passes under autocast, and float16 scales the loss; weights
        stay float32.
    :param shuffle: draw a new order for every pass; otherwise the given order.
    :param drop_last: leave out an incomplete last batch, as MOON does, unless it is the only one.
    :param augmentation: changes the images of each batch; None leaves them as they are.
    :param seed: decides the order, the augmentation, and what the network itself draws (dropout).
    :param divisor: what the loss of some targets divides its sum by, `LearningTask.divisor`; None is their number.
    :param group: processes that share every batch.
    """

    lr: float
    epochs: int = 1
    batch_size: int = 32
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    betas: tuple[float, float] = BETAS
    eps: float = EPS
    weight_decay: float = 0.0
    kept: OptimizerState | None = field(default=None, compare=False)
    gradient_clip: float | None = None
    min_steps: int = 1
    max_steps: int | None = None
    min_examples: int = 1
    accumulation: int = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    shuffle: bool = True
    drop_last: bool = False
    augmentation: AugmentationSpec | None = None
    seed: int = 0
    divisor: Callable[[Tensor], Tensor | None] | None = field(default=None, compare=False)
    group: ProcessGroup = ALONE

    @classmethod
    def of(cls, training: TrainingSpec, *, round: int, rounds: int, seed: int) -> Self:
        """The plan that `spec.training` gives for a round (from 1)."""
        optimizer = training.optimizer
        first, second = optimizer.betas or BETAS
        plan = cls(
            lr=learning_rate(training, round, rounds),
            accumulation=training.gradient_accumulation or 1,
            optimizer=optimizer.name,
            momentum=optimizer.momentum,
            nesterov=bool(optimizer.nesterov),
            betas=(first, second),
            eps=EPS if optimizer.eps is None else optimizer.eps,
            weight_decay=optimizer.weight_decay,
            gradient_clip=training.gradient_clip,
            precision=training.precision,
            augmentation=training.augmentation,
            seed=seed,
        )
        return plan.taking(LocalSteps.of(training))

    @property
    def steps(self) -> LocalSteps:
        """How many steps it takes."""
        return LocalSteps(self.batch_size, self.epochs, self.min_steps, self.max_steps)

    def taking(self, steps: LocalSteps) -> Self:
        """Another plan that takes these steps, and is otherwise this one."""
        return replace(self, **asdict(steps))

    def views(self) -> View:
        """What a batch's features become before they are learned from, in the order of the batches."""
        return (
            Augmentation(self.augmentation, self.seed) if self.augmentation else lambda features, *_: features
        )

    @property
    def own_seed(self) -> int:
        """Of what the network draws in this process: dropout that is the same in all would be correlated."""
        return derive_seed(self.seed, "rank", self.group.rank) if self.group.rank else self.seed


@dataclass(frozen=True)
class TrainingReport:
    """What `fit` did.

    :param steps: optimiser steps taken, less than planned where gradients in float16 overflowed.
    :param loss: mean over the samples of the last pass, as far as it went, each under the weights of its own step.
    :param examples: size of the training set.
    :param first_loss: of the first step, before the model moved.
    """

    steps: int
    loss: float
    examples: int
    first_loss: float


def learning_rate(training: TrainingSpec, round: int, rounds: int) -> float:
    """Rate of a round (from 1): warm-up min(round / warmupRounds, 1) times the schedule.

    Cosine goes from the full rate in round 1 towards 0 after the last round, half a period (Loshchilov and
    Hutter, "SGDR", ICLR 2017, eq. 5, without restarts); exponential is decay**(round - 1).
    """
    rate = training.optimizer.learning_rate
    if training.warmup_rounds:
        rate *= min(round / training.warmup_rounds, 1.0)
    match training.schedule:
        case "constant":
            return rate
        case "cosine":
            return rate * 0.5 * (1.0 + math.cos(math.pi * (round - 1) / rounds))
        case "exponential":
            return rate * float(training.decay ** (round - 1))


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
    """(n,) bool: which examples the steps of `fit` see, each as often as they please.

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
    gradients = Gradients(model, loss, plan, touched, skip_single, device)
    group.broadcast_([*touched, *model.buffers()])
    wholes, ahead = tee(islice(order, steps))
    shares = (index[group.share(len(index), skip_single)] for index in ahead)
    with seeded(plan.own_seed, device), closing(examples.stream(shares)) as stream:
        for step, (index, (_, features, labels)) in enumerate(zip(wholes, stream, strict=True)):
            features = view(features, group.share(len(index), skip_single), len(index))
            whole = labels if len(labels) == len(index) else examples.labels[index]
            value = gradients.of(features, labels, whole) if len(labels) else gradients.nothing()
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
        optimizer = Momentum(named, plan.lr, plan.momentum, plan.weight_decay, plan.nesterov)
    else:
        decoupled = plan.optimizer == "adamw"
        optimizer = Adam(named, plan.lr, plan.betas, plan.eps, plan.weight_decay, decoupled=decoupled)
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
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """What the network draws follows from the seed meanwhile; afterwards the generators are as before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _weighted_mean(losses: Tensor, sizes: list[int]) -> float:
    weights: Any = torch.tensor(sizes, dtype=torch.float64)
    return float((losses.double().cpu() @ weights / weights.sum()).item())
