"""Preprocessing at the aggregator: numbers from the silos' statistics, which go with every task from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec
from fedsilo.learning.preprocessing_numbers import to_document
from fedsilo.methods.components.feature_statistics import KIND, pool, pool_targets
from fedsilo.methods.interface import PREPROCESSING, Assignment, Exchange
from fedsilo.methods.state import State
from fedsilo.transforms.preprocessing.numbers import numbers_of, standardised_outputs
from fedsilo.transforms.transform import AggregatorSide, Broadcast, ReceivedExchange

if TYPE_CHECKING:
    from torch import nn


class PreprocessingAggregatorSide(AggregatorSide):
    """The exchange before round 1, and what comes of it."""

    def __init__(self, spec: FederatedJobSpec) -> None:
        self._data = spec.data
        self._outputs = standardised_outputs(spec)

    @override
    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        """Silos are given nothing."""
        return Broadcast(state, dict.fromkeys(silos, Assignment()))

    @override
    def fold(self, received: ReceivedExchange) -> State:
        """State with the numbers.

        :raises DataInvalid: when it needs a feature that no silo has.
        """
        updates, asked = received.updates, self._data.preprocessing
        assert asked is not None, "else there is no such exchange"
        sent = [(silo, updates.tensors(silo, KIND)) for silo in updates.silos]
        found, targets = pool(sent, self._data), None
        if self._outputs:
            targets = pool_targets(sent, self._outputs)
        return received.state.with_trees(**{PREPROCESSING: numbers_of(asked, found, targets)})

    @override
    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """The numbers, once there are any."""
        if PREPROCESSING not in broadcast.state.trees:
            return broadcast
        return broadcast.adding({PREPROCESSING: PREPROCESSING})

    @override
    def network(self, state: State, network: nn.Module) -> nn.Module:
        """The network with raw values prepared first."""
        if PREPROCESSING not in state.trees:
            return network
        from fedsilo.learning.models import with_preprocessing
        from fedsilo.learning.preprocessing import Preprocessing

        with_preprocessing(network, Preprocessing(state.tree(PREPROCESSING)))
        return network

    @override
    def model_description(self, state: State) -> Mapping[str, Any]:
        """The numbers, which whoever uses the model needs."""
        return {PREPROCESSING: to_document(state.tree(PREPROCESSING))} if PREPROCESSING in state.trees else {}
