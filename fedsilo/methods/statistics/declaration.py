"""Declaration of the statistics: what a job asks about the silos' features, and what they send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.api.job import ModelSpec
from fedsilo.methods.components.feature_statistics import payloads
from fedsilo.methods.components.statistics_of_silos import of_all, of_each
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep, Snapshot
from fedsilo.methods.method import Method
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.statistics.config import StatisticsConfig
from fedsilo.methods.step import Step
from fedsilo.methods.traits import StateTraits, TaskTraits
from fedsilo.tasks.interface import EVERY_TASK

STEP = "statistics"


class Statistics(Method):
    """Declaration of the statistics."""

    name = "statistics"
    title = "Statistics of features"
    use_when = "no model is wanted, but counts, means and histograms of all silos' data"
    citation = (
        "T. F. Chan, G. H. Golub, R. J. LeVeque. Updating Formulae and a Pairwise Algorithm for Computing Sample "
        "Variances. 1979."
    )
    keeps = StateTraits("the statistics")
    tasks = TaskTraits(EVERY_TASK - {"language"}, "tokens are numbered, not measured")
    Config = StatisticsConfig
    config: StatisticsConfig

    @property
    @override
    def models(self) -> JobModels:
        """Statistics in place of a model, as the tensors that come of the job."""
        found = SharedModel(is_model=False, architecture=ModelSpec(name=STEP), report=self._lines)
        return JobModels(found)

    @override
    def steps(self) -> Mapping[str, Step]:
        """Silos send statistics, and no figure."""
        return {STEP: Step(payloads(self.spec.data, self.config.edges))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """All silos are asked once, whatever `spec.training.rounds`."""
        return (Phase(STEP, 1, STEP, everyone=True),)

    @override
    def server(self) -> ServerHalf[Any]:
        """What adds the statistics."""
        from fedsilo.methods.statistics.server import StatisticsServer

        return StatisticsServer(self.config, of_all if self.spec.aggregation.secure else of_each)

    @property
    @override
    def reads(self) -> type[Mean]:
        """Statistics of single silos, which are merged about their means, unless sums of them are seen only."""
        return Sums if self.spec.aggregation.secure else Updates

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        from fedsilo.methods.statistics.silo import state_statistics

        return {STEP: state_statistics(self.config)}

    def _lines(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """A line for each feature; no mean where there is no value."""
        tree = snapshot.tree
        lines: list[dict[str, Any]] = []
        for feature, count in enumerate(tree["count"].tolist()):
            line = {"feature": feature, "count": count, "missing": int(tree["missing"][feature])}
            if count:
                variance = float(tree["variance"][feature])
                mean = float(tree["mean"][feature])
                line |= {"mean": mean, "variance": variance, "standardDeviation": variance**0.5}
            if feature in self.config.edges:
                counts = tree[f"histogram/{feature}"].tolist()
                line["histogram"] = {"edges": list(self.config.edges[feature]), "counts": counts}
            lines.append(line)
        return {"statistics": lines}

    @override
    def check(self) -> list[Finding]:
        """Histograms are of features that there are, each of one, with rising edges."""
        return list(self._faults())

    def _faults(self) -> Iterator[Finding]:
        features = self.spec.data.input_shape[0]
        seen: set[int] = set()
        for position, histogram in enumerate(self.config.histograms):
            where = f"spec.method.config.histograms[{position}]"
            if histogram.feature >= features:
                problem = f"is no feature: spec.data.inputShape has {features}"
                yield f"{where}.feature", histogram.feature, problem, f"use 0 to {features - 1}"
            if histogram.feature in seen:
                yield f"{where}.feature", histogram.feature, "has two histograms", "remove one"
            seen.add(histogram.feature)
            for place, (low, high) in enumerate(pairwise(histogram.edges), start=1):
                if high <= low:
                    problem = f"is not above the edge before it, {low:g}"
                    yield f"{where}.edges[{place}]", high, problem, "let the edges rise"
                    break
