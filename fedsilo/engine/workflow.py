"""What a job does, exchange by exchange, as functions of its state: no files, no signatures, no clock.

Everything that runs a job takes the silos' tasks from here and folds their updates here: the round engine over its
directory, a simulation in memory, and the traffic estimate with synthetic updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.schema import Schema
from fedsilo.engine.bound_half import BoundHalf
from fedsilo.engine.context import JobContext
from fedsilo.engine.job_model import JobModel
from fedsilo.engine.record import Record
from fedsilo.engine.result import FinalModel
from fedsilo.engine.round import OpenRound
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method, declaring
from fedsilo.methods.schedule import participants
from fedsilo.methods.state import Scalar, State
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.transform import (
    Aggregator,
    AggregatorSide,
    Broadcast,
    ReceivedExchange,
    Signers,
    UnfinishedExchange,
    acting,
)
from fedsilo.updates.figures import mean_metrics, public_metrics
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.wire import Contract

if TYPE_CHECKING:
    from fedsilo.engine.scoring import GlobalEvaluation


class Workflow:
    """One job's exchanges, and the method's server half that runs them.

    :param test_set: where the aggregator holds one.
    :param signers: whose updates come; None where one process has all of them, so that nothing is hidden from it.
    :ivar model: of the job.
    :ivar exchanges: all of them, in order.
    :ivar rounds: number of the last round.
    """

    def __init__(
        self,
        method: Method,
        context: JobContext,
        test_set: GlobalEvaluation | None = None,
        signers: Signers | None = None,
    ) -> None:
        self.plan = JobPlan(method)
        self._method = method
        self._half = BoundHalf(self.plan, context)
        self._context = context
        self._test_set = test_set
        self._contracts: dict[tuple[str, tuple[tuple[str, int], ...]], Contract] = {}
        self._openly = signers is None
        place = Aggregator(
            context,
            self.plan.exchanges,
            self.contract,
            self._half.model,
            lambda state: self.model.network(state),
            self._recomputed_broadcast,
            self._half.own_settings,
            test_set,
            signers,
        )
        self._sides = {each: each.at_aggregator(place) for each in self.plan.transforms}
        self.model = JobModel(method, self._half, tuple(self._sides.values()))
        self.exchanges = [each for each in self.plan.exchanges if each.of is None or not self._openly]
        self.rounds = self.exchanges[-1].round
        self._last_steps = {exchange.of or exchange: exchange for exchange in self.exchanges}

    @property
    def method(self) -> Method:
        """Declaration of the job's method."""
        return self._method

    @property
    def spec(self) -> FederatedJobSpec:
        """Specification of the job whose exchanges these are."""
        return self._context.spec

    @property
    def test_schema(self) -> Schema | None:
        """Names and types of the test set, where the aggregator holds one."""
        return None if self._test_set is None else self._test_set.schema

    @property
    def parameters(self) -> int:
        """Numbers in the job's model."""
        return sum(prod(tensor.shape) for tensor in self._context.signature.tensors)

    def start(self) -> State:
        """State before round 1.

        :raises MethodError: when the method's server half fails, here and below.
        """
        state = self._half.start()
        for side in self._sides.values():
            state = side.start(state)
        return state

    def stored_state(self, state: State, blobs: Path) -> State:
        """The state with all its trees in files, of which new ones are named by the job's hash."""
        return state.store(blobs, self.spec.digest_algorithm)

    def round(self, state: State, exchange: Exchange) -> OpenRound:
        """Who takes part in an exchange, and how many answers count."""
        spec = self.spec
        silos: Sequence[str] = participants(spec, exchange, self._context.silos)
        quorum = spec.participation.quorum(len(silos))
        for side in self._sides.values():
            silos = side.select_silos(state, exchange, silos)
        return OpenRound(tuple(silos), quorum, spec.participation.round_deadline.seconds)

    def contract(self, step: str, settings: Mapping[str, Scalar]) -> Contract:
        """What may come back for a task of this step."""
        signature = self._context.signature
        with declaring(self._method):
            key = step, tuple(sorted(self._method.dimensions(signature, settings).items()))
            if key not in self._contracts:
                contract = self.plan.contract(step, signature, settings)
                self._contracts[key] = (contract.summed if self._openly else None) or contract
        return self._contracts[key]

    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        """What each silo is handed."""
        owner = self.plan.owner(exchange.phase.step)
        if owner is not None:
            broadcast = self._sides[owner].assign(state, exchange, silos)
        else:
            broadcast = Broadcast(state, self._half.assign(state, exchange, silos))
        for side in self._outer_sides(exchange, "send"):
            broadcast = side.send(exchange, broadcast)
        return broadcast

    def fold(
        self, state: State, exchange: Exchange, updates: RoundUpdates, broadcast: Broadcast
    ) -> tuple[State, dict[str, Any]]:
        """State after the exchange, and the figures of its updates for the record of the round.

        :param broadcast: what `assign` gave for the exchange.
        """
        received, whole = (
            ReceivedExchange(state, exchange, updates, lambda: broadcast),
            exchange.of or exchange,
        )
        for side in reversed(self._outer_sides(whole, "receive")):
            passed = side.receive(received)
            if isinstance(passed, UnfinishedExchange):
                return passed.state, {}
            received = passed
        owner = self.plan.owner(whole.phase.step)
        if owner is not None:
            return self._sides[owner].fold(received), self._sides[owner].figures(received)
        updates, after = received.updates, self._aggregate_received(received)
        found = {
            "samples": {silo: updates.samples(silo) for silo in updates.silos},
            "training": mean_metrics(updates),
            "silos": {silo: public_metrics(updates, silo) for silo in updates.silos},
        }
        return after, {**found, **received.figures()}

    def aggregate_updates(self, state: State, exchange: Exchange, updates: RoundUpdates) -> State:
        """State after an exchange with updates that have passed all transforms."""
        nothing = Broadcast(state, {})
        received = ReceivedExchange(state, exchange, updates, lambda: nothing)
        owner = self.plan.owner(exchange.phase.step)
        return self._aggregate_received(received) if owner is None else self._sides[owner].fold(received)

    def _aggregate_received(self, received: ReceivedExchange) -> State:
        return self._half.aggregate(received, partial(self.model.raw_input_network, received.state))

    def score(self, state: State, exchange: Exchange) -> dict[str, Any]:
        """Score of the new model for the record, where the aggregator scores it after this exchange."""
        whole = exchange.of or exchange
        if self.plan.owner(whole.phase.step) is not None or self._last_steps[whole] != exchange:
            return {}
        scores: dict[str, Any] = {}
        for side in self._sides.values():
            scores |= side.model_scores(state, whole, self.rounds)
        return scores

    def checkpoint(self, state: State, history: Sequence[Record]) -> FinalModel | None:
        """The model to be kept by the way, where one is due after the last complete round.

        :param state: after that round.
        """
        every = self.spec.evaluation.checkpoints
        if every is None or not history:
            return None
        number = history[-1]["round"]
        return self.model.latest_model(state, history, number) if number % every == 0 else None

    def position_after(self, position: int, state: State) -> int:
        """Place of the exchange that follows one: of the next in which somebody is asked something.

        :param state: after that exchange.
        """
        following = position + 1
        while following < len(self.exchanges) and not self.round(state, self.exchanges[following]).silos:
            following += 1
        return following

    def is_over(self, position: int, history: Sequence[Record]) -> bool:
        """Whether the job is over: all exchanges are complete, or those that follow are not needed any more."""
        return position == len(self.exchanges) or any(side.is_over(history) for side in self._sides.values())

    def is_last_of_round(self, position: int) -> bool:
        """Whether the exchange at this place completes its round."""
        after = position + 1
        return after == len(self.exchanges) or self.exchanges[after].round != self.exchanges[position].round

    def _outer_sides(self, exchange: Exchange, verb: str) -> list[AggregatorSide]:
        """The transforms that an exchange passes which have this to do at the aggregator."""
        sides = [self._sides[each] for each in self.plan.outer_transforms(exchange.phase.step)]
        return acting(sides, AggregatorSide, verb)

    def _recomputed_broadcast(
        self, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Callable[[], Broadcast]:
        return lambda: self.assign(state, exchange, silos)
