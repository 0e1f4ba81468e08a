"""Noise that the trainer adds to what silos send: differential privacy of examples or persons.

The noise itself is part of training (`fedsilo.methods.components.private_steps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.guard import GuardPlace, GuardSide
from fedsilo.transforms.training_noise.conflicts import check_examples
from fedsilo.transforms.training_noise.unprotected_tensors import trainer_adds_noise
from fedsilo.transforms.transform import TrainerSide, Transform


class TrainingNoiseTransform(Transform):
    """Keeps in the silo what has no noise and is not as the task handed it out."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job whose differential privacy is of examples or persons."""
        return cls(method) if trainer_adds_noise(method.spec) else None

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """What nothing makes private."""
        private = self.spec.privacy.differential_privacy
        assert private is not None, "else there is no such transform"
        return check_examples(self.method, private)

    @override
    def in_trainer(self) -> TrainerSide:
        """The comparison with the task."""
        from fedsilo.transforms.training_noise.trainer import TrainingNoiseTrainerSide

        return TrainingNoiseTrainerSide()

    @override
    def describe(self) -> Mapping[str, str]:
        """Unit, epsilon and delta."""
        return {"privacy": str(self.spec.privacy.differential_privacy)}

    @override
    def in_guard(self, place: GuardPlace) -> GuardSide:
        """The comparison with the job's plan."""
        from fedsilo.transforms.training_noise.guard import TrainingNoiseGuardSide

        return TrainingNoiseGuardSide(self.method)
