"""FedProto at the aggregator: the mean of the silos' prototypes, class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.fedproto.config import FedProtoConfig
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Snapshot
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State, Tree

TREE = "prototypes"

KEPT_SHARE = 0.5
"""Part of a prototype that MAP's code keeps from round to round."""


@dataclass(frozen=True)
class FedProtoServer:
    """Server half that keeps the prototype of each class that a silo has told of.

    Tree: `prototypes`, with a tensor `prototype/<class>`, (d,), for each of these classes.
    """

    config: FedProtoConfig

    def start(self, job: ServerContext) -> State:
        """An empty state, since no class has a prototype yet."""
        return State()

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the prototypes, once there are any."""
        trees = {TREE: TREE} if TREE in state.trees else {}
        return {silo: Assignment(trees) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """Prototypes after the round; a class that no silo of the round told of keeps the one that it has."""
        old = state.tree(TREE) if TREE in state.trees else {}
        new = {f"prototype/{label}": mean for label, mean in self._means(sums).items()}
        if self.config.variant == "map":
            new = {
                name: KEPT_SHARE * old[name] + (1 - KEPT_SHARE) * p if name in old else p
                for name, p in new.items()
            }
        prototypes: Tree = {**old, **{name: np.asarray(p, np.float32) for name, p in new.items()}}
        return state.with_trees(**{TREE: dict(sorted(prototypes.items()))}) if prototypes else state

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The prototypes as tensors, since there is no model for all silos."""
        return Snapshot(state.tree(TREE) if TREE in state.trees else {})

    def _means(self, sums: Sums) -> dict[int, np.ndarray]:
        """Class -> mean over the silos that told of it, each alike; in MAP's code by their counts, eq. 6."""
        if self.config.variant == "paper":
            means = sums.combine("class_means")
            return {int(name.rpartition("/")[2]): mean for name, mean in means.items()}
        totals = sums.combine("class_means")
        counts = {
            name.rpartition("/")[2]: int(total) for name, total in totals.items() if name.startswith("count/")
        }
        told = {label: n for label, n in counts.items() if n >= 1 and f"total/{label}" in totals}
        return {int(label): totals[f"total/{label}"] / n for label, n in told.items()}
