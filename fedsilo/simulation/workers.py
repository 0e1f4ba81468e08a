"""Worker processes that share the silos' tasks: each runs one at a time, with the arithmetic of a silo by itself.

Workers are forked when all data are loaded, so that they share them, and before anything is computed in several
threads, which does not survive a fork. Private state stays with the simulation and travels with task and update: any
worker can run any silo's task, and which one does changes no byte.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fedsilo.api.training import TrainingSpec
from fedsilo.errors import FedsiloError
from fedsilo.learning.devices import prepare_torch
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import Tree, as_stored
from fedsilo.simulation.backend import Outcome
from fedsilo.simulation.silos import SimulatedFailure, SimulatedSilo, SimulatedTask, SimulatedUpdate

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


class ProcessBackend:
    """The silos of this process, in worker processes.

    :param training: the job's, for PyTorch's settings in each of them.
    """

    def __init__(self, silos: Mapping[str, SimulatedSilo], count: int, training: TrainingSpec) -> None:
        self._silos = silos
        self._workers: list[Worker] = []
        for _ in range(count):
            self._fork(silos, training)

    def _fork(self, silos: Mapping[str, SimulatedSilo], training: TrainingSpec) -> None:
        forking = multiprocessing.get_context("fork")
        ours, theirs = forking.Pipe()
        # A worker that held another's end of a pipe would keep that other alive when this process dies.
        inherited = [ours, *(worker.connection for worker in self._workers)]
        process = forking.Process(target=_work, args=(theirs, inherited, silos, training), daemon=True)
        process.start()
        theirs.close()
        self._workers.append(Worker(process, ours))

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcomes as they come; the largest silos are first, so that no worker idles for long at the end.

        :raises FedsiloError: when no worker is left.
        """
        waiting = deque(sorted(tasks, key=lambda task: -self._silos[task.silo].samples))
        trees, numbers = _numbered_trees(tasks)
        busy: dict[Connection, tuple[Worker, SimulatedTask]] = {}
        for worker in self._workers:
            worker.known.clear()
        while waiting or busy:
            for worker in self._workers:
                if waiting and worker.connection not in busy:
                    task = waiting.popleft()
                    busy[worker.connection] = worker, task
                    _send(worker, task, trees, numbers)
            if not busy:
                raise FedsiloError("every worker process has ended; see the system's log for the reason")
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, task = busy.pop(ready)
                yield task.silo, self._receive(worker)

    def close(self) -> None:
        """Terminate all worker processes and wait for their end."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()
        self._workers.clear()

    def _receive(self, worker: Worker) -> SimulatedUpdate | SimulatedFailure:
        try:
            found: SimulatedUpdate | SimulatedFailure = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.process.join()
            return SimulatedFailure(
                "TrainerLost", f"its worker ended with exit code {worker.process.exitcode}"
            )
        return found


def _numbered_trees(tasks: Sequence[SimulatedTask]) -> tuple[Trees, dict[int, int]]:
    """All trees that the tasks name, and the number of each by identity."""
    trees: Trees = {}
    numbers: dict[int, int] = {}
    for task in tasks:
        for tree in task.task.trees.values():
            trees[numbers.setdefault(id(tree), len(numbers))] = tree
    return trees, numbers


def _send(worker: Worker, task: SimulatedTask, trees: Trees, numbers: Mapping[int, int]) -> None:
    named = {name: numbers[id(tree)] for name, tree in task.task.trees.items()}
    new = {number: trees[number] for number in named.values() if number not in worker.known}
    first, worker.known = not worker.known, worker.known | new.keys()
    without_trees = replace(task, task=replace(task.task, trees={}))
    try:
        worker.connection.send((first, new, named, without_trees))
    except OSError:
        return  # it has ended, which `_receive` notices


def _work(
    connection: Connection,
    inherited: Sequence[Connection],
    silos: Mapping[str, SimulatedSilo],
    training: TrainingSpec,
) -> None:
    """Run tasks until the simulation's end of the connection is gone."""
    # The collector would write into what it looks at, and pages that are written to are copied.
    gc.freeze()
    # Ctrl-C in the terminal is for the simulation, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    prepare_torch(training.threads, training.repeatable)
    trees: dict[int, Tree] = {}
    while True:
        try:
            first, new, named, task = connection.recv()
        except EOFError:
            return
        if first:
            trees.clear()
        for number, tree in new.items():
            trees[number] = {name: as_stored(array) for name, array in tree.items()}
        given = {name: trees[number] for name, number in named.items()}
        silo_task: SiloTask = replace(task.task, trees=given)
        private = task.private.in_memory()
        found = silos[task.silo].answer(replace(task, task=silo_task, private=private))
        try:
            connection.send(found)
        except OSError:
            return
