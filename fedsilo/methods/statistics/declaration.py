"""Declaration of the statistics: what a job asks about the silos' features, and what they send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        found = SharedModel(is_model=False, architecture=ModelSpec(name=STEP), report=self._report)
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

    def _report(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """A line for each feature, and what a reader must know: values that are in no figure."""
        lines = self._lines(snapshot)
        remarks = list(self._remarks(lines))
        return {"statistics": lines, **({"remarks": remarks} if remarks else {})}

    def _remarks(self, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        for line in lines:
            if line["suppressed"]:
                yield (
                    f"feature {line['feature']}: {line['suppressed']} values are in no figure, with what these silos "
                    "lack, since they have fewer than the minimum of job and silo; lower minSamplesPerFeature where "
                    "the silos can"
                )
            if suppressed := line.get("histogram", {}).get("suppressed"):
                yield (
                    f"feature {line['feature']}: {suppressed} of {line['count']} values are in no part of the "
                    f"histogram, since their parts have too few; {self._remedy}"
                )

    @property
    def _remedy(self) -> str:
        coarser = "use fewer edges"
        if self.spec.aggregation.secure:
            return coarser
        return f"{coarser}, or spec.aggregation.secure: only the total of a part must then reach the minimum"

    def _lines(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        """A line for each feature; no mean where there is no value."""
        tree = snapshot.tree
        lines: list[dict[str, Any]] = []
        for feature, count in enumerate(tree["count"].tolist()):
            line = {"feature": feature, "count": count}
            line |= {name: int(tree[name][feature]) for name in ("missing", "suppressed")}
            if count:
                variance = float(tree["variance"][feature])
                mean = float(tree["mean"][feature])
                line |= {"mean": mean, "variance": variance, "standardDeviation": variance**0.5}
            if feature in self.config.edges:
                counts = tree[f"histogram/{feature}"].tolist()
                edges, suppressed = list(self.config.edges[feature]), count - sum(counts)
                line["histogram"] = {"edges": edges, "counts": counts, "suppressed": suppressed}
            lines.append(line)
        return lines

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
