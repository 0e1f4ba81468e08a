"""The statistics at the aggregator: those of the silos, added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

from fedsilo.methods.components.feature_statistics import KIND, pool, pool_histograms
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Snapshot
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State, Tree
from fedsilo.methods.statistics.config import StatisticsConfig

Read = TypeVar("Read", bound=Mean)


@dataclass(frozen=True)
class StatisticsServer(Generic[Read]):
    """Counts, means and sums of squares, merged in the order of the job's references. Tree: `features`.

    :param sent: the statistics of each silo, or of all together.
    """

    config: StatisticsConfig
    sent: Callable[[Read, str], Iterable[tuple[str, Tree]]]

    def start(self, job: ServerContext) -> State:
        """An empty state, since no silo has sent statistics yet."""
        return State()

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Silos are given nothing."""
        return {silo: Assignment() for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, read: Read) -> State:
        """Statistics of all silos' examples together."""
        sent = list(self.sent(read, KIND))
        found = pool(sent, job.spec.data)
        values = read.total_samples() * prod(job.spec.data.input_shape[1:])
        features: Tree = {
            "count": found.count,
            "missing": found.missing,
            "suppressed": values - found.count - found.missing,
            "mean": found.mean,
            "variance": found.variance,
            **pool_histograms(sent, self.config.edges, job.spec),
        }
        return state.with_trees(features=features)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The statistics, as tensors."""
        return Snapshot(state.tree("features"))
