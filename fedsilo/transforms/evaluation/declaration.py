"""Silos' scores of the model, and of their own models, in an exchange after each round that is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.methods.interface import EVALUATE, Exchange, Phase
from fedsilo.methods.method import Method
from fedsilo.methods.schedule import is_evaluated
from fedsilo.methods.step import (
    NAMED_PERSONAL_ACCURACY,
    NAMED_SCORES,
    PERSONAL_ACCURACY,
    Metric,
    Step,
)
from fedsilo.tasks.registry import metrics_of
from fedsilo.transforms.evaluation.conflicts import check_metrics_of_method
from fedsilo.transforms.evaluation.sums import sums_payloads
from fedsilo.transforms.transform import Aggregator, AggregatorSide, TrainerSide, Transform


class EvaluationTransform(Transform):
    """Scores models where their examples are: in silos, or at an aggregator that holds a test set."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job in which there is anything to score."""
        return cls(method) if method.models.scored else None

    @override
    def steps(self) -> Mapping[str, Step]:
        """What a silo may say of the models that it scores: the job's, and its own if the method makes one."""
        return {EVALUATE: self._step()}

    def _step(self) -> Step:
        method, spec = self.method, self.spec
        own: tuple[Metric, ...] = ()
        if method.models.personal is not None:
            # By silo's name where single silos are seen.
            names = (PERSONAL_ACCURACY, *(() if spec.aggregation.secure else (NAMED_PERSONAL_ACCURACY,)))
            own = tuple(Metric(name, is_unweighted=True) for name in names)
        if not method.models.shared.is_model:
            return Step(metrics=own)
        scores = (*map(Metric, metrics_of(spec.task)), *own)
        if spec.evaluation.test_dataset is not None:
            return Step(metrics=scores)
        chosen = ChosenMetrics.of_job(spec)
        by_silo = (Metric(name, chosen.ranges.get(name), is_unweighted=True) for name in chosen.by_silo)
        summed = (Metric(name, chosen.ranges.get(name)) for name in chosen.intermediate_metrics)
        # Where single silos are seen, a silo may permit that its scores are.
        named = () if spec.aggregation.secure else (Metric(NAMED_SCORES, (1.0, 1.0)),)
        return Step(tuple(sums_payloads(chosen, spec)), (*scores, *by_silo, *summed, *named))

    @property
    def by_silos(self) -> bool:
        """Whether silos score models: their own, which nobody else can, or the job's where nobody else does."""
        method = self.method
        return method.models.personal is not None or (
            method.models.shared.is_model and self.spec.evaluation.test_dataset is None
        )

    @override
    def plan(self, exchanges: list[Exchange]) -> list[Exchange]:
        """One exchange more after each round that is evaluated."""
        if not self.by_silos or not exchanges:
            return exchanges
        rounds, found = exchanges[-1].round, list[Exchange]()
        for exchange in exchanges:
            found.append(exchange)
            if is_evaluated(self.spec, exchange.round, rounds):
                scoring = Phase(EVALUATE, rounds, EVALUATE, everyone=True)
                found.append(Exchange(scoring, exchange.round, exchange.round, rounds))
        return found

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """Metrics of a model that there is none of."""
        return check_metrics_of_method(self.method)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """What hands out the model to score, and puts scores together."""
        from fedsilo.transforms.evaluation.aggregator import EvaluationAggregatorSide

        return EvaluationAggregatorSide(self.method, place)

    @override
    def in_trainer(self) -> TrainerSide:
        from fedsilo.transforms.evaluation.trainer import EvaluationTrainerSide

        return EvaluationTrainerSide(self.method)
