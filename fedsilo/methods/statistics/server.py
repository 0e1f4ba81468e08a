"""The statistics at the aggregator: those of the silos, added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsilo.methods.building_blocks.feature_statistics import pool, pool_histograms
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Snapshot, Updates
from fedsilo.methods.state import State, Tree
from fedsilo.methods.statistics.config import StatisticsConfig


@dataclass(frozen=True)
class StatisticsServer:
    """Counts, means and sums of squares, merged in the order of the job's references. Tree: `features`."""

    config: StatisticsConfig

    def start(self, job: ServerContext) -> State:
        """Nothing is known."""
        return State()

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Silos are given nothing."""
        return {silo: Assignment() for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Those of all silos together."""
        found = pool(updates, job.spec.data)
        features: Tree = {
            "count": found.count,
            "missing": found.missing,
            "mean": found.mean,
            "variance": found.variance,
            **pool_histograms(updates, self.config.edges),
        }
        return state.with_trees(features=features)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The statistics, as tensors."""
        return Snapshot(state.tree("features"))
