"""Parts of a model at the aggregator: the initial weights of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from typing_extensions import override

from fedsilo.methods.interface import INITIAL_WEIGHTS, Exchange, Snapshot
from fedsilo.methods.state import State
from fedsilo.transforms.transform import AggregatorSide, Broadcast


class ParametersAggregatorSide(AggregatorSide):
    """The initial weights in the job's state, in tasks, and in the place of what silos do not share.

    :param context: the job's, which has them.
    :param handed_out: whether tasks carry them.
    """

    def __init__(self, context: Any, handed_out: bool) -> None:
        self._context, self._handed_out = context, handed_out

    @override
    def start(self, state: State) -> State:
        """The state with them: whoever goes on with the job, or checks it, finds there what it began with."""
        return state.with_trees(**{INITIAL_WEIGHTS: self._context.initial_weights()})

    @override
    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """Hand out the initial weights with every task: a guard keeps the blobs of a task and of the one before it."""
        return broadcast.adding({INITIAL_WEIGHTS: INITIAL_WEIGHTS}) if self._handed_out else broadcast

    @override
    def model(self, state: State, snapshot: Snapshot) -> Snapshot:
        """The model with the initial values of what silos do not share."""
        parts = self._context.parts
        if parts is None:
            return snapshot
        return replace(snapshot, tree=parts.full_tree(state.tree(INITIAL_WEIGHTS), snapshot.tree))
