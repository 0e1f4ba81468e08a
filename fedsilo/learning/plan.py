"""The plan of a silo's training: what one call of `fit` does, as the job's settings of a round give it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Self

from torch import Tensor

from fedsilo.api.training import BETAS, EPS, AugmentationSpec, TrainingSpec
from fedsilo.learning.augmentation import Augmentation
from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP, ProcessGroup
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.learning.optimizers import OptimizerName, OptimizerState
from fedsilo.learning.seeding import derive_seed

View = Callable[[Tensor, slice, int], Tensor]
"""(features, their place in the batch, size of the batch) -> features as they are learned from."""


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
    group: ProcessGroup = SINGLE_PROCESS_GROUP

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

    @property
    def reads_gradients(self) -> bool:
        """Whether a step is more than the rate times the gradient, for which a sparse one would do."""
        more = self.momentum or self.weight_decay or self.gradient_clip is not None
        return bool(more) or self.optimizer != "sgd" or self.group.world_size > 1

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
        """Seed of what the network draws in this process: dropout that is the same in all would be correlated."""
        return derive_seed(self.seed, "rank", self.group.rank) if self.group.rank else self.seed


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
