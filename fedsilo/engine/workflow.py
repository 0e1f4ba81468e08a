"""What a job does, exchange by exchange, as functions of its state: no files, no signatures, no clock.

Everything that runs a job takes the silos' tasks from here and folds their updates here: the round engine over its
directory, a simulation in memory, and the traffic estimate with synthetic updates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.data.schema import Schema
from fedsilo.engine.context import JobContext
from fedsilo.engine.record import Record
from fedsilo.engine.result import Released
from fedsilo.engine.round import OpenRound
from fedsilo.errors import FedsiloError, MethodError
from fedsilo.methods.interface import Exchange, ServerHalf, Snapshot
from fedsilo.methods.method import Method, averaging_of
from fedsilo.methods.schedule import participants
from fedsilo.methods.state import Scalar, State, require_finite
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Broadcast, Received, Unfinished
from fedsilo.updates.figures import mean_metrics, public_metrics
from fedsilo.updates.folded import FoldedUpdates
from fedsilo.wire import Contract

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger("fedsilo.engine")


class Workflow:
    """One job's exchanges, and the method's server half that runs them.

    :param evaluation: the test set, where the aggregator holds one.
    :param sums: what it has to know of silos whose updates it sees summed; without, sums are made in the open, in one
        exchange.
    :ivar exchanges: all of them, in order.
    :ivar rounds: number of the last round.
    """

    def __init__(self, method: Method, context: JobContext, evaluation: Any = None, sums: Any = None) -> None:
        self.plan = JobPlan(method)
        self._method = method
        self._half: ServerHalf[Any] = method.server()
        self._context = context
        self._evaluation = evaluation
        self._contracts: dict[tuple[str, tuple[tuple[str, int], ...]], Contract] = {}
        self._openly = sums is None
        place = Aggregator(
            context,
            self.contract,
            self._model,
            self.trained,
            self._again,
            self._own_settings,
            evaluation,
            sums,
        )
        self._sides = {each: each.at_aggregator(place) for each in self.plan.transforms}
        self.exchanges = [each for each in self.plan.exchanges if each.of is None or not self._openly]
        self.rounds = self.exchanges[-1].round
        self._last_steps = {exchange.of or exchange: exchange for exchange in self.exchanges}

    @property
    def method(self) -> Method:
        """Declaration of the job's method."""
        return self._method

    @property
    def spec(self) -> FederatedJobSpec:
        """The job's specification."""
        return self._context.spec

    @property
    def test_schema(self) -> Schema | None:
        """Names and types of the test set, where the aggregator holds one."""
        return None if self._evaluation is None else self._evaluation.schema

    @property
    def parameters(self) -> int:
        """Numbers in the job's model."""
        return sum(prod(tensor.shape) for tensor in self._context.signature.tensors)

    def start(self) -> State:
        """State before round 1.

        :raises MethodError: when the method's server half fails, here and below.
        """
        with self._method_errors("start"):
            state = self._half.start(self._context)
        for side in self._sides.values():
            state = side.start(state)
        return state

    def stored(self, state: State, blobs: Path) -> State:
        """The state with all its trees in files, of which new ones are named by the job's hash."""
        return state.store(blobs, self.spec.digest_algorithm)

    def round(self, state: State, exchange: Exchange) -> OpenRound:
        """Who takes part in an exchange, and how many answers count."""
        spec = self.spec
        silos: Sequence[str] = participants(spec, exchange, self._context.silos)
        quorum = spec.participation.quorum(len(silos))
        for side in self._sides.values():
            silos = side.asked(state, exchange, silos)
        return OpenRound(tuple(silos), quorum, spec.participation.round_deadline.seconds)

    def contract(self, step: str, settings: Mapping[str, Scalar]) -> Contract:
        """What may come back for a task of this step."""
        signature = self._context.signature
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
            with self._method_errors("assign"):
                own = self.plan.of_method(state)
                broadcast = Broadcast(state, self._half.assign(self._context, own, exchange, silos))
        for side in self._outside(exchange):
            broadcast = side.send(exchange, broadcast)
        return broadcast

    def fold(
        self, state: State, exchange: Exchange, updates: FoldedUpdates, broadcast: Broadcast
    ) -> tuple[State, dict[str, Any]]:
        """State after the exchange, and the figures of its updates for the record of the round.

        :param broadcast: what `assign` gave for the exchange.
        """
        received, whole = Received(state, exchange, updates, lambda: broadcast), exchange.of or exchange
        for side in reversed(self._outside(whole)):
            passed = side.receive(received)
            if isinstance(passed, Unfinished):
                return passed.state, {}
            received = passed
        owner = self.plan.owner(whole.phase.step)
        if owner is not None:
            return self._sides[owner].fold(received), self._sides[owner].figures(received)
        updates, after = received.updates, self._aggregated(received)
        found = {
            "samples": {silo: updates.samples(silo) for silo in updates.silos},
            "training": mean_metrics(updates),
            "silos": {silo: public_metrics(updates, silo) for silo in updates.silos},
        }
        return after, {**found, **received.figures()}

    def aggregated(self, state: State, exchange: Exchange, updates: FoldedUpdates) -> State:
        """State after an exchange with updates that have passed all transforms."""
        nothing = Broadcast(state, {})
        received, owner = (
            Received(state, exchange, updates, lambda: nothing),
            self.plan.owner(exchange.phase.step),
        )
        return self._aggregated(received) if owner is None else self._sides[owner].fold(received)

    def _aggregated(self, received: Received) -> State:
        updates, before = received.updates, received.state
        read = self._method.reads(updates, averaging_of(self._method), received.averaged)
        seen = self.plan.of_method(before.with_trees(**received.saw))
        with self._method_errors("aggregate"):
            context = replace(self._context, prepared=lambda network: self._prepared(before, network))
            after = self._half.aggregate(context, seen, received.exchange, read)
        # A tree that the method has left alone is what it was, and not what silos saw of it.
        alone = [name for name, tree in received.saw.items() if after.trees.get(name) is tree]
        after = after.with_trees(**{name: before.trees[name] for name in alone if name in before.trees})
        require_finite(before, after)
        return self.plan.with_method(before, after)

    def score(self, state: State, exchange: Exchange) -> dict[str, Any]:
        """Score of the new model for the record, where the aggregator scores it after this exchange."""
        whole = exchange.of or exchange
        if self.plan.owner(whole.phase.step) is not None or self._last_steps[whole] != exchange:
            return {}
        scores: dict[str, Any] = {}
        for side in self._sides.values():
            scores |= side.scored(state, whole, self.rounds)
        return scores

    def model(self, state: State) -> Snapshot:
        """The model as it would be used now."""
        snapshot = self._model(state)
        for side in self._sides.values():
            snapshot = side.model(state, snapshot)
        return snapshot

    def trained(self, state: State) -> nn.Module:
        """The network of the model as it would be used now, on the CPU."""
        from fedsilo.engine.scoring import network

        snapshot = self.model(state)
        return self._prepared(state, network(self.spec, snapshot.tree, self.architecture(snapshot)))

    def selected(self, state: State, history: Sequence[Record]) -> State:
        """State after a complete round."""
        for side in self._sides.values():
            state = side.completed(state, history, partial(self.model, state))
        return state

    def released(self, state: State, history: Sequence[Record]) -> Released:
        """The model that the job ends with."""
        for side in self._sides.values():
            snapshot, number = side.released(state, history)
            if number is not None:
                return self._released(state, snapshot or self.model(state), history, number)
        return self._released(state, self.model(state), history, None)

    def checkpoint(self, position: int, state: State, history: Sequence[Record]) -> Released | None:
        """The model to be kept by the way, where one is due after so many complete exchanges."""
        every = self.spec.evaluation.checkpoints
        if every is None or position == 0 or not self.is_last_of_round(position - 1):
            return None
        number = self.exchanges[position - 1].round
        return self._released(state, self.model(state), history, number) if number % every == 0 else None

    def _released(
        self, state: State, snapshot: Snapshot, history: Sequence[Record], number: int | None
    ) -> Released:
        described = self.description(state, snapshot)
        return Released(snapshot.tree, self.architecture(snapshot), described, history, number)

    def is_over(self, position: int, history: Sequence[Record]) -> bool:
        """Whether nothing follows: all exchanges are complete, or those that follow are not needed any more."""
        return position == len(self.exchanges) or any(side.is_over(history) for side in self._sides.values())

    def architecture(self, snapshot: Snapshot) -> ModelSpec:
        """Architecture of that model."""
        return self._method.models.shared_architecture(self._method.spec, snapshot.settings)

    def description(self, state: State, snapshot: Snapshot) -> dict[str, Any]:
        """What `model.json` says beside the job's own fields."""
        with self._method_errors("report"):
            report = dict(self._method.models.shared.report(snapshot))
        for side in self._sides.values():
            report |= side.described(state)
        return report

    def is_last_of_round(self, position: int) -> bool:
        """Whether the exchange at this place completes its round."""
        after = position + 1
        return after == len(self.exchanges) or self.exchanges[after].round != self.exchanges[position].round

    def _outside(self, exchange: Exchange) -> list[AggregatorSide]:
        return [self._sides[each] for each in self.plan.outside(exchange.phase.step)]

    def _model(self, state: State) -> Snapshot:
        with self._method_errors("model"):
            return self._half.model(self._context, self.plan.of_method(state))

    def _prepared(self, state: State, network: nn.Module) -> nn.Module:
        for side in self._sides.values():
            network = side.network(state, network)
        return network

    def _again(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Callable[[], Broadcast]:
        return lambda: self.assign(state, exchange, silos)

    def _own_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        with self._method_errors("silo_settings"):
            return self._method.silo_settings(exchange, silo)

    @contextmanager
    def _method_errors(self, function: str) -> Iterator[None]:
        """Report any error of the method, which may be a third party's, as a `MethodError`."""
        try:
            yield
        except (FedsiloError, OSError):
            raise
        except Exception as error:
            log.exception("%s of method %s", function, self._method.name)
            text = f"{function} of method {self._method.name} failed: {type(error).__name__}: {error}"
            raise MethodError(text) from error
