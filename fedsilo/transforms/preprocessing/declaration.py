"""Preprocessing is an exchange before round 1 in which silos' statistics become what is done with every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.components.feature_statistics import payloads, statistics_payloads
from fedsilo.methods.interface import PREPROCESSING, Exchange, Phase
from fedsilo.methods.method import Method
from fedsilo.methods.step import TARGETS, Step
from fedsilo.transforms.preprocessing.conflicts import check_values
from fedsilo.transforms.preprocessing.numbers import standardised_outputs
from fedsilo.transforms.transform import Aggregator, AggregatorSide, TrainerSide, Transform


class PreprocessingTransform(Transform):
    """Has all silos fill, centre and scale features alike, as the statistics of all of them say."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job with `spec.data.preprocessing`, in which there is a model to prepare values for."""
        asked = method.models.scored and method.spec.data.preprocessing is not None
        return cls(method) if asked else None

    @override
    def owns(self, name: str) -> bool:
        """The tree of numbers."""
        return name == PREPROCESSING

    @override
    def keeps(self, name: str) -> bool:
        """The numbers beside a silo's own model, which takes raw values."""
        return name == PREPROCESSING

    @override
    def steps(self) -> Mapping[str, Step]:
        outputs = standardised_outputs(self.spec)
        targets = statistics_payloads(TARGETS, outputs) if outputs else ()
        return {PREPROCESSING: Step((*payloads(self.spec.data, {}), *targets))}

    @override
    def plan(self, exchanges: list[Exchange]) -> list[Exchange]:
        """One exchange with all silos before round 1."""
        return [Exchange(Phase(PREPROCESSING, 1, PREPROCESSING, everyone=True), 1, 1, 1), *exchanges]

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """A learning task that reads no measured values."""
        return check_values(self.method)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """What makes numbers of the statistics."""
        from fedsilo.transforms.preprocessing.aggregator import PreprocessingAggregatorSide

        return PreprocessingAggregatorSide(self.spec)

    @override
    def in_trainer(self) -> TrainerSide:
        """What prepares the silo's values."""
        from fedsilo.transforms.preprocessing.trainer import PreprocessingTrainerSide

        return PreprocessingTrainerSide()
