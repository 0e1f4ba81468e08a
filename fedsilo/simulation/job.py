"""One job in memory: for every exchange, run the silos' tasks, wait for all of them, fold.

Left out are transport, signatures, and every file but the result. What decides the result is the engine's own: the
exchanges, the samples of silos, quorum, the contract of every update, each silo's policy, the order of the sum. No silo
is late here, so that no deadline passes. A simulation's state is lost with its process, unless whoever runs it keeps
`Simulation.progress` between two rounds and begins another one there.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from fedsilo.data.schema import Schema
from fedsilo.engine.data_description import silos_classes
from fedsilo.engine.model_card import write_model_card
from fedsilo.engine.record import round_record, with_metrics
from fedsilo.engine.result import FinalModel, Result, write_checkpoint, write_result
from fedsilo.engine.round import OpenRound, RoundOutcome, fatal_failure
from fedsilo.engine.store import JobIdentity
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import Assignment, Exchange, SiloTask
from fedsilo.methods.main_metric import main_metric, whole_evaluation
from fedsilo.methods.schedule import task_id
from fedsilo.methods.state import State, Tree
from fedsilo.readiness.finding import ReadinessFinding
from fedsilo.silo.policy import EgressTotals
from fedsilo.simulation.backend import Backend
from fedsilo.simulation.silos import SimulatedTask, SimulatedUpdate
from fedsilo.updates.held import InMemoryUpdates

HISTORY = "history.jsonl"

Writing = Callable[[Callable[[], None]], None]
"""Calls what writes a file and may be repeated, until there is space for it."""


def write_once(write: Callable[[], None]) -> None:
    """Write, without waiting for space."""
    write()


@dataclass(frozen=True)
class SimulatedExchange:
    """The exchange that is under way in a simulated job, with its round."""

    exchange: Exchange
    round: OpenRound


@dataclass(frozen=True)
class Progress:
    """Where a simulated job stands between two rounds: all that its next round follows from.

    :param position: exchanges that are complete.
    :param state: of the aggregator's half.
    :param private: silo -> what it keeps since its last update that counted.
    :param sent: silo -> what has left it.
    :param history: one record per completed round.
    """

    position: int
    state: State
    private: Mapping[str, State]
    sent: Mapping[str, EgressTotals]
    history: tuple[Mapping[str, Any], ...]


class Simulation:
    """One job's rounds, from the first task to the model.

    :param directory: of model, description and history.
    :param writing: how they are written: what is computed is nowhere else, so that a full disk should be waited for.
    :param schemata: silo -> names and types of its data, for the model card.
    :ivar backend: what executes the tasks; one that counts or watches may be put around it before the run.
    :ivar current_exchange: the open exchange, while there is one.
    :ivar result: the model, once it is there.
    :ivar failure: why the job failed, once it has.
    :ivar findings: what the silos say of their data, where the job asks for that.
    :ivar classes: names of the classes, where they are known.
    :ivar private: what each silo keeps since its last update that counted.
    :ivar progress: after the last completed round; None before the first.
    """

    def __init__(
        self,
        workflow: Workflow,
        identity: JobIdentity,
        directory: Path,
        backend: Backend,
        writing: Writing = write_once,
        schemata: Mapping[str, Schema] | None = None,
    ) -> None:
        self.identity = identity
        self.rounds = workflow.rounds
        self.parameters = workflow.parameters
        self.evaluation, self.main_metric = whole_evaluation(workflow.method), main_metric(workflow.method)
        self.current_exchange: SimulatedExchange | None = None
        self.result: Result | None = None
        self.failure: FedsiloError | None = None
        self.private: dict[str, State] = {}
        self.progress: Progress | None = None
        self.findings: tuple[ReadinessFinding, ...] = ()
        self._sent: dict[str, EgressTotals] = {}
        self._workflow = workflow
        self._directory = directory
        self.backend = backend
        self._writing = writing
        self._schemata = schemata or {}
        self.classes = workflow.spec.data.class_names or silos_classes(self._schemata)
        self._history_bytes = 0
        self._history: list[dict[str, Any]] = []

    def history(self) -> list[dict[str, Any]]:
        """One record per completed round."""
        return self._history

    def close(self) -> None:
        """Release the backend, also when the simulation has not come to its end."""
        self.backend.close()

    def run(self, begun: Progress | None = None) -> Iterator[None]:
        """Run the job to its end, with a pause after every silo's update and every exchange.

        :param begun: of another simulation of the same job, to go on from; the model is then the same to the byte.
        """
        try:
            yield from self._run(begun or Progress(0, self._workflow.start(), {}, {}, ()))
        except FedsiloError as error:
            self.failure = error

    def _run(self, begun: Progress) -> Iterator[None]:
        state, record, position = self._begin(begun), dict[str, Any](), begun.position
        while not self._workflow.is_over(position, self._history):
            exchange = self._workflow.exchanges[position]
            updates = yield from self._collect(state, exchange)
            state, record = self._fold(state, record, updates)
            position += 1
            if self._workflow.is_last_of_round(position - 1):
                self._complete(record)
                record = {}
                state = self._workflow.model.complete_round(state, self._history).in_memory()
                self._write_checkpoint(state)
                self.progress = self._current_progress(position, state)
            yield
        self.current_exchange = None
        released = self._workflow.model.final_model(state, self._history)
        self._writing(lambda: self._write_result(released))

    def _begin(self, begun: Progress) -> State:
        self.private, self._sent = dict(begun.private), dict(begun.sent)
        for record in begun.history:
            self._complete(dict(record))
        return begun.state.in_memory()

    def _current_progress(self, position: int, state: State) -> Progress:
        return Progress(position, state, dict(self.private), dict(self._sent), tuple(self._history))

    def _collect(self, state: State, exchange: Exchange) -> Generator[None, None, dict[str, SimulatedUpdate]]:
        """The updates of one exchange, as many as there are when its round closes."""
        round = self._workflow.round(state, exchange)
        self._broadcast = self._workflow.assign(state, exchange, round.silos)
        offered, given = self._broadcast.state, self._broadcast.tasks
        # Once for all silos: a worker is sent each tree once, by its identity.
        trees = {
            name: offered.tree(name) for name in {*chain(*(each.trees.values() for each in given.values()))}
        }
        tasks = [self._task(trees, exchange, silo, given[silo]) for silo in round.silos]
        updates: dict[str, SimulatedUpdate] = {}
        self.current_exchange = SimulatedExchange(exchange, round)
        for silo, found in self.backend.run(tasks):
            if isinstance(found, SimulatedUpdate):
                updates[silo] = found
                round = round.answer(silo)
            else:
                round = round.fail(silo, f"{found.reason}: {found.message}")
                if failure := fatal_failure(silo, found.reason, found.message):
                    raise failure
                if round.outcome is RoundOutcome.QUORUM_LOST:
                    raise round.loss()
            self.current_exchange = replace(self.current_exchange, round=round)
            yield
        return updates

    def _task(
        self, offered: Mapping[str, Tree], exchange: Exchange, silo: str, assignment: Assignment
    ) -> SimulatedTask:
        settings, step = dict(assignment.settings), exchange.phase.step
        task = SiloTask(
            step=step,
            phase=exchange.phase.name,
            round=exchange.round,
            phase_round=exchange.phase_round,
            phase_rounds=exchange.phase_rounds,
            trees={name: offered[tree] for name, tree in assignment.trees.items()},
            settings=settings,
        )
        contract = self._workflow.contract(step, settings)
        private, sent = self.private.get(silo, State()), self._sent.get(silo, EgressTotals())
        return SimulatedTask(silo, task_id(exchange, silo), task, contract, private, sent)

    def _fold(
        self, state: State, before: Mapping[str, Any], updates: Mapping[str, SimulatedUpdate]
    ) -> tuple[State, dict[str, Any]]:
        assert self.current_exchange is not None
        exchange, closed = self.current_exchange.exchange, self.current_exchange.round
        counted = {silo: updates[silo] for silo in self.identity.silos if silo in updates}
        kept = {silo: update.private for silo, update in counted.items() if update.private is not None}
        self.private |= kept
        sizes = {silo: update.size for silo, update in counted.items()}
        for silo, size in sizes.items():
            self._sent[silo] = self._sent.get(silo, EgressTotals()).plus(exchange.round, size)
        record = round_record(before, exchange, closed, {}, sizes)
        folded, found = self._workflow.fold(state, exchange, InMemoryUpdates(counted), self._broadcast)
        folded = folded.in_memory()
        return folded, with_metrics(record, found, self._workflow.score(folded, exchange))

    def _complete(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        self._writing(lambda: self._append(line))
        self._history_bytes += len(line)
        self._history.append(record)

    def _append(self, line: bytes) -> None:
        with (self._directory / HISTORY).open("ab", buffering=0) as file:
            file.truncate(self._history_bytes)  # what an attempt has left that found no space
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)

    def _write_checkpoint(self, state: State) -> None:
        due, spec = self._workflow.checkpoint(state, self._history), self._workflow.spec
        if due is not None:
            self._writing(lambda: write_checkpoint(self._directory, due, spec, self.identity))

    def _write_result(self, released: FinalModel) -> None:
        result = write_result(self._directory, released, self._workflow.spec, self.identity)
        write_model_card(self._directory, self._workflow.method, self._history, self._schemata)
        self.result = result
