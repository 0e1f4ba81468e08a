"""A job's model as its state has it: as it would be used now, and as the job ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsilo.api.job import ModelSpec
from fedsilo.engine.bound_half import BoundHalf
from fedsilo.engine.record import Record
from fedsilo.engine.result import FinalModel
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
        return self.raw_input_network(
            state, network(self._method.spec, snapshot.tree, self._architecture(snapshot))
        )

    def raw_input_network(self, state: State, network: nn.Module) -> nn.Module:
        """A network as it takes raw values."""
        for side in self._sides:
            network = side.network(state, network)
        return network

    def complete_round(self, state: State, history: Sequence[Record]) -> State:
        """State after a complete round."""
        for side in self._sides:
            state = side.complete_round(state, history, partial(self.snapshot, state))
        return state

    def final_model(self, state: State, history: Sequence[Record]) -> FinalModel:
        """The model that the job ends with."""
        for side in self._sides:
            snapshot, number = side.final_model(state, history)
            if number is not None:
                return self._final_model(state, snapshot or self.snapshot(state), history, number)
        return self.latest_model(state, history)

    def latest_model(self, state: State, history: Sequence[Record], number: int | None = None) -> FinalModel:
        """The model as it would be used now, to be kept.

        :param number: of its round, where that is not the job's last.
        """
        return self._final_model(state, self.snapshot(state), history, number)

    def _final_model(
        self, state: State, snapshot: Snapshot, history: Sequence[Record], number: int | None
    ) -> FinalModel:
        described = self._description(state, snapshot)
        return FinalModel(snapshot.tree, self._architecture(snapshot), described, history, number)

    def _architecture(self, snapshot: Snapshot) -> ModelSpec:
        return self._method.models.shared_architecture(self._method.spec, snapshot.settings)

    def _description(self, state: State, snapshot: Snapshot) -> dict[str, Any]:
        """What `model.json` says beside the job's own fields."""
        report = self._half.report(snapshot)
        for side in self._sides:
            report |= side.model_description(state)
        return report
