"""A job's model as its state has it: as it would be used now, and as the job ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsilo.api.job import ModelSpec
from fedsilo.engine.bound_half import BoundHalf
from fedsilo.engine.record import Record
from fedsilo.engine.result import Released
from fedsilo.methods.interface import Snapshot
from fedsilo.methods.method import Method
from fedsilo.methods.state import State
from fedsilo.transforms.transform import AggregatorSide

if TYPE_CHECKING:
    from torch import nn


class JobModel:
    """The model of one job.

    :param sides: of the job's transforms at the aggregator, from the method outward.
    """

    def __init__(self, method: Method, half: BoundHalf, sides: Sequence[AggregatorSide]) -> None:
        self._method, self._half, self._sides = method, half, sides

    def snapshot(self, state: State) -> Snapshot:
        """The model as it would be used now.

        :raises MethodError: when the method's server half fails, here and below.
        """
        snapshot = self._half.model(state)
        for side in self._sides:
            snapshot = side.model(state, snapshot)
        return snapshot

    def network(self, state: State) -> nn.Module:
        """The network of the model as it would be used now, on the CPU."""
        from fedsilo.engine.scoring import network

        snapshot = self.snapshot(state)
        return self.prepared(state, network(self._method.spec, snapshot.tree, self._architecture(snapshot)))

    def prepared(self, state: State, network: nn.Module) -> nn.Module:
        """A network as it takes raw values."""
        for side in self._sides:
            network = side.network(state, network)
        return network

    def selected(self, state: State, history: Sequence[Record]) -> State:
        """State after a complete round."""
        for side in self._sides:
            state = side.completed(state, history, partial(self.snapshot, state))
        return state

    def released(self, state: State, history: Sequence[Record]) -> Released:
        """The model that the job ends with."""
        for side in self._sides:
            snapshot, number = side.released(state, history)
            if number is not None:
                return self._released(state, snapshot or self.snapshot(state), history, number)
        return self.last(state, history)

    def last(self, state: State, history: Sequence[Record], number: int | None = None) -> Released:
        """The model as it would be used now, to be kept.

        :param number: of its round, where that is not the job's last.
        """
        return self._released(state, self.snapshot(state), history, number)

    def _released(
        self, state: State, snapshot: Snapshot, history: Sequence[Record], number: int | None
    ) -> Released:
        described = self._description(state, snapshot)
        return Released(snapshot.tree, self._architecture(snapshot), described, history, number)

    def _architecture(self, snapshot: Snapshot) -> ModelSpec:
        return self._method.models.shared_architecture(self._method.spec, snapshot.settings)

    def _description(self, state: State, snapshot: Snapshot) -> dict[str, Any]:
        """What `model.json` says beside the job's own fields."""
        report = self._half.report(snapshot)
        for side in self._sides:
            report |= side.described(state)
        return report
