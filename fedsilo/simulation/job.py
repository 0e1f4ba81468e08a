"""One job in memory: for every exchange, ask the silos, wait for all of them, fold.

Left out are transport, signatures, and every file but the result. What decides the result is the engine's own: the
exchanges, the samples of silos, quorum, the contract of every answer, each silo's policy, the order of the sum. Nobody
is late here, so that no deadline passes. What a simulation holds is gone with its process; it cannot be resumed.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.record import round_record, with_figures
from fedsilo.engine.result import Result, write_result
from fedsilo.engine.round import OpenRound, RoundOutcome, fatal_failure
from fedsilo.engine.store import JobIdentity
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import Assignment, Exchange, SiloTask
from fedsilo.methods.schedule import task_id
from fedsilo.methods.state import State
from fedsilo.simulation.silos import Failure, SimulatedTask, SimulatedUpdate
from fedsilo.simulation.updates import InMemoryUpdates

HISTORY = "history.jsonl"


class Answering(Protocol):
    """What answers questions: this process, or others."""

    def answers(self, questions: Sequence[SimulatedTask]) -> Iterable[tuple[str, SimulatedUpdate | Failure]]:
        """Silo and answer, in whatever order they come."""

    def close(self) -> None:
        """End what answers."""


@dataclass(frozen=True)
class AskedExchange:
    """The exchange that waits for answers."""

    exchange: Exchange
    round: OpenRound


class Simulation:
    """One job's rounds, from the first question to the model.

    :param directory: of model, description and history.
    :ivar current: the open exchange, while there is one.
    :ivar result: the model, once it is there.
    :ivar failure: why the job failed, once it has.
    :ivar private: what each silo keeps since its last answer that counted.
    """

    def __init__(
        self,
        course: Workflow,
        identity: JobIdentity,
        spec: FederatedJobSpec,
        directory: Path,
        answering: Answering,
    ) -> None:
        self.identity = identity
        self.rounds = course.rounds
        self.parameters = course.parameters
        self.current: AskedExchange | None = None
        self.result: Result | None = None
        self.failure: FedsiloError | None = None
        self.private: dict[str, State] = {}
        self._course = course
        self._spec = spec
        self._directory = directory
        self._answering = answering
        self._history: list[dict[str, Any]] = []

    def history(self) -> list[dict[str, Any]]:
        """One record per completed round."""
        return self._history

    def close(self) -> None:
        """End what the silos run in; a simulation that was left before its end must not leave it behind."""
        self._answering.close()

    def play(self) -> Iterator[None]:
        """Go to the end of the job, with a pause after every answer and every exchange."""
        try:
            yield from self._play()
        except FedsiloError as error:
            self.failure = error

    def _play(self) -> Iterator[None]:
        state, record = self._course.start().held(), dict[str, Any]()
        for position, exchange in enumerate(self._course.exchanges):
            answers = yield from self._ask(state, exchange)
            state, record = self._fold(state, record, answers)
            if self._course.is_last_of_round(position):
                self._complete(record)
                record = {}
            yield
        self.current = None
        snapshot = self._course.model(state)
        architecture = self._course.architecture(snapshot)
        self.result = write_result(
            self._directory, snapshot.tree, architecture, self._spec, self.identity, self._history
        )

    def _ask(self, state: State, exchange: Exchange) -> Generator[None, None, dict[str, SimulatedUpdate]]:
        """The answers of one exchange, as many as there are when its round closes."""
        round = self._course.round(exchange)
        offered, assignments = self._course.ask(state, exchange, round.silos)
        questions = [self._question(offered, exchange, silo, assignments[silo]) for silo in round.silos]
        answers: dict[str, SimulatedUpdate] = {}
        self.current = AskedExchange(exchange, round)
        for silo, answer in self._answering.answers(questions):
            if isinstance(answer, SimulatedUpdate):
                answers[silo] = answer
                round = round.answer(silo)
            else:
                round = round.fail(silo, f"{answer.reason}: {answer.message}")
                if failure := fatal_failure(silo, answer.reason, answer.message):
                    raise failure
                if round.outcome is RoundOutcome.QUORUM_LOST:
                    raise round.loss()
            self.current = replace(self.current, round=round)
            yield
        return answers

    def _question(self, offered: State, exchange: Exchange, silo: str, given: Assignment) -> SimulatedTask:
        settings, step = dict(given.settings), exchange.phase.step
        task = SiloTask(
            step=step,
            phase=exchange.phase.name,
            round=exchange.round,
            phase_round=exchange.phase_round,
            phase_rounds=exchange.phase_rounds,
            trees={name: offered.tree(tree) for name, tree in given.trees.items()},
            settings=settings,
        )
        contract = self._course.contract(step, settings)
        return SimulatedTask(silo, task_id(exchange, silo), task, contract, self.private.get(silo, State()))

    def _fold(
        self, state: State, before: Mapping[str, Any], answers: Mapping[str, SimulatedUpdate]
    ) -> tuple[State, dict[str, Any]]:
        assert self.current is not None
        exchange, closed = self.current.exchange, self.current.round
        counted = {silo: answers[silo] for silo in self.identity.silos if silo in answers}
        kept = {silo: answer.private for silo, answer in counted.items() if answer.private is not None}
        self.private |= kept
        sizes = {silo: answer.size for silo, answer in counted.items()}
        record = round_record(before, exchange, closed, {}, sizes)
        folded, found = self._course.fold(state, exchange, InMemoryUpdates(counted))
        folded = folded.held()
        return folded, with_figures(record, found, self._course.score(folded, exchange))

    def _complete(self, record: dict[str, Any]) -> None:
        self._history.append(record)
        with (self._directory / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, sort_keys=True) + "\n")
