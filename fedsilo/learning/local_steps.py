"""How many steps a silo takes in one round: what its training counts, and what is charged where they are private."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from fedsilo.api.training import TrainingSpec


@dataclass(frozen=True)
class LocalSteps:
    """The steps of one round in one silo.

    :param batch_size: examples of a step.
    :param epochs: passes over the examples.
    :param min_steps: take at least so many steps, passing over the examples again as needed.
    :param max_steps: take at most so many steps; wins over `epochs` and `min_steps`.
    """

    batch_size: int
    epochs: int = 1
    min_steps: int = 1
    max_steps: int | None = None

    @classmethod
    def of(cls, training: TrainingSpec) -> Self:
        """What `spec.training` asks of every round; of localEpochs and localSteps it has one, and the steps win."""
        return cls(
            training.examples_per_step,
            training.local_epochs,
            training.local_steps or training.min_steps,
            training.local_steps,
        )

    def number(self, used: int) -> int:
        """Steps in a silo whose passes use so many examples, or draw from so many records; below 1 of a wrong plan."""
        steps = max(self.epochs * math.ceil(used / self.batch_size), self.min_steps)
        return steps if self.max_steps is None else min(steps, self.max_steps)
