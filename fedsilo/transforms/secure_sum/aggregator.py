"""Secure sums at the aggregator: messages handed on, and the sum in the place of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from typing_extensions import override

from fedsilo.errors import JobFailed, Problem
from fedsilo.methods.interface import Assignment, Exchange
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.transforms.guard import MODEL
from fedsilo.transforms.secure_sum.protocol import RESPONDERS, SecureSums, without_secure_sums
from fedsilo.transforms.secure_sum.steps import (
    ANNOUNCED,
    CONFIRMED,
    KEYS,
    UNMASK,
    continues_with_responders,
    layout_of,
    require_one_broadcast,
)
from fedsilo.transforms.secure_sum.summed import AGGREGATE_SENDER, SummedUpdates, sum_plaintext
from fedsilo.transforms.transform import (
    Aggregator,
    AggregatorSide,
    Broadcast,
    ReceivedExchange,
    UnfinishedExchange,
)


class _SecureSumAggregatorSide(AggregatorSide):
    def __init__(self, method: Method, place: Aggregator) -> None:
        self._method, self._spec, self._place = method, method.spec, place

    @override
    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """The broadcast, which is one for all silos.

        :raises MethodError: when it is not: masks would not cancel.
        """
        own = {silo: self._place.own_settings(exchange, silo) for silo in broadcast.assignments}
        require_one_broadcast(self._method.name, broadcast.assignments, own)
        return broadcast

    def _layout(self, whole: Exchange) -> Layout:
        contract = self._place.contract(whole.phase.step, {})
        return layout_of(self._method, contract.summed or contract)


class OpenSums(_SecureSumAggregatorSide):
    """Sums of updates that are seen, to the bit those of masked ones."""

    @override
    def receive(self, received: ReceivedExchange) -> ReceivedExchange:
        """The sum in the place of the updates."""
        updates, rule = received.updates, self._spec.aggregation.rule
        layout = self._layout(received.exchange)
        summed = sum_plaintext(updates, layout, rule, _sent_model(received.broadcast()))
        return _of_all(received, summed, updates.silos)


class MaskedSums(_SecureSumAggregatorSide):
    """The protocol, exchange by exchange."""

    def __init__(self, method: Method, place: Aggregator) -> None:
        super().__init__(method, place)
        assert place.signers is not None, "else sums are open"
        self._sums = SecureSums(place.signers.job, place.signers.keys, place.exchanges)

    @override
    def select_silos(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Sequence[str]:
        if exchange.phase.step == KEYS and ANNOUNCED in state.trees:
            return ()  # all of them have announced their keys in earlier sums
        return tuple(state.values[RESPONDERS]) if continues_with_responders(self._spec, exchange) else silos

    @override
    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        """Messages of the other silos."""
        return Broadcast(state, self._sums.step_assignments(exchange.phase.step, silos))

    @override
    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """The broadcast with what silos mask by."""
        found = super().send(exchange, broadcast)
        for silo, given in self._sums.step_assignments(
            exchange.phase.step, list(broadcast.assignments)
        ).items():
            found = found.adding(given.trees, [silo])
        return found

    @override
    def receive(self, received: ReceivedExchange) -> ReceivedExchange | UnfinishedExchange:
        """The sum, after its last step."""
        exchange, state = received.exchange, received.state
        with _ending_the_job():
            if exchange.phase.step != UNMASK:
                return UnfinishedExchange(
                    self._sums.on_messages(self._spec, state, exchange, received.updates)
                )
            assert exchange.of is not None, "the last is a step"
            answered, layout = tuple(state.tree(CONFIRMED)), self._layout(exchange.of)
            whole = replace(received, exchange=exchange.of, state=without_secure_sums(state))
            again = self._place.assigned_again(whole.state, exchange.of, answered)
            sent = _sent_model(again())
            summed = self._sums.unmask_sum(self._spec, state, exchange, received.updates, layout, sent)
            begun = self._sums.begin_next(self._spec, whole.state, exchange, received.updates)
        return _of_all(replace(whole, state=begun, broadcast=again), summed, answered)


def _sent_model(broadcast: Broadcast) -> Tree:
    """The tree from which silos count changes, as it was sent; empty where they were sent none."""
    given = next(iter(broadcast.assignments.values()), Assignment())
    return broadcast.state.tree(given.trees[MODEL]) if MODEL in given.trees else {}


def _of_all(received: ReceivedExchange, summed: SummedUpdates, answered: Sequence[str]) -> ReceivedExchange:
    """What has come of an exchange with the sum in the place of updates, and in the record nothing by silo."""
    alone = {"silos": list(answered), "samples": summed.samples(AGGREGATE_SENDER)}
    figures: Mapping[str, Any] = {"samples": {}, "silos": {}, "summed": alone}
    return replace(received, updates=summed).recording(lambda: figures)


@contextmanager
def _ending_the_job() -> Iterator[None]:
    """A block that makes a sum of updates which are stored: what does not hold in them holds after no restart.

    :raises JobFailed: in place of a refusal in the protocol.
    """
    try:
        yield
    except Problem as problem:
        raise JobFailed(str(problem)) from problem
