"""Worker processes that share the silos' work: each answers one question at a time, with one client's arithmetic.

Workers are forked when all data are loaded, so that they share them, and before anything is computed in several
threads, which does not survive a fork. Private state stays with the simulation and travels with question and answer:
any worker can answer for any silo, and which one does changes no byte.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fedsilo.errors import FedsiloError
from fedsilo.learning.devices import prepare_torch
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import Tree, as_stored
from fedsilo.simulation.silos import Failure, SimulatedSilo, SimulatedTask, SimulatedUpdate

Trees = dict[int, Mapping[str, Any]]
"""Trees of one exchange by number: each goes to each worker once, however many silos are given it."""


@dataclass
class Worker:
    """One process, as the simulation sees it.

    :ivar known: numbers of the trees that it has.
    """

    process: BaseProcess
    connection: Connection
    known: set[int] = field(default_factory=set)


class Workers:
    """The silos of other processes.

    :param threads: of PyTorch, in each of them.
    """

    def __init__(self, silos: Mapping[str, SimulatedSilo], count: int, threads: int) -> None:
        self._silos = silos
        self._workers: list[Worker] = []
        forking = multiprocessing.get_context("fork")
        for _ in range(count):
            ours, theirs = forking.Pipe()
            # Who holds another's end of a pipe would keep that other alive when this process dies.
            inherited = [ours, *(worker.connection for worker in self._workers)]
            process = forking.Process(target=_work, args=(theirs, inherited, silos, threads), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(Worker(process, ours))

    def answers(self, questions: Sequence[SimulatedTask]) -> Iterator[tuple[str, SimulatedUpdate | Failure]]:
        """Silo and answer as they come; the largest silos are asked first, so that nobody waits long at the end.

        :raises FedsiloError: when no worker is left.
        """
        waiting = deque(sorted(questions, key=lambda question: -self._silos[question.silo].samples))
        trees, numbers = _numbered(questions)
        busy: dict[Connection, tuple[Worker, SimulatedTask]] = {}
        for worker in self._workers:
            worker.known.clear()
        while waiting or busy:
            for worker in self._workers:
                if waiting and worker.connection not in busy:
                    question = waiting.popleft()
                    busy[worker.connection] = worker, question
                    _send(worker, question, trees, numbers)
            if not busy:
                raise FedsiloError("every worker process has ended; see the system's log for the reason")
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, question = busy.pop(ready)
                yield question.silo, self._receive(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()
        self._workers.clear()

    def _receive(self, worker: Worker) -> SimulatedUpdate | Failure:
        try:
            answer: SimulatedUpdate | Failure = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.process.join()
            return Failure("TrainerLost", f"its worker ended with exit code {worker.process.exitcode}")
        return answer


def _numbered(questions: Sequence[SimulatedTask]) -> tuple[Trees, dict[int, int]]:
    """All trees that the questions name, and the number of each by identity."""
    trees: Trees = {}
    numbers: dict[int, int] = {}
    for question in questions:
        for tree in question.task.trees.values():
            trees[numbers.setdefault(id(tree), len(numbers))] = tree
    return trees, numbers


def _send(worker: Worker, question: SimulatedTask, trees: Trees, numbers: Mapping[int, int]) -> None:
    named = {name: numbers[id(tree)] for name, tree in question.task.trees.items()}
    new = {number: trees[number] for number in named.values() if number not in worker.known}
    first, worker.known = not worker.known, worker.known | new.keys()
    bare = replace(question, task=replace(question.task, trees={}))
    try:
        worker.connection.send((first, new, named, bare))
    except OSError:
        return  # it has ended, as its answer will say


def _work(
    connection: Connection,
    inherited: Sequence[Connection],
    silos: Mapping[str, SimulatedSilo],
    threads: int,
) -> None:
    """SimulatedUpdate until the other side is gone."""
    # Ctrl-C in the terminal is for the simulation, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    prepare_torch(threads)
    trees: dict[int, Tree] = {}
    while True:
        try:
            first, new, named, question = connection.recv()
        except EOFError:
            return
        if first:
            trees.clear()
        for number, tree in new.items():
            trees[number] = {name: as_stored(array) for name, array in tree.items()}
        given = {name: trees[number] for name, number in named.items()}
        task: SiloTask = replace(question.task, trees=given)
        private = question.private.held()
        answer = silos[question.silo].answer(replace(question, task=task, private=private))
        try:
            connection.send(answer)
        except OSError:
            return
