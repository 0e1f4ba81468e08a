"""Bytes that the silos of a simulation send and fetch, exactly as they would."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedsilo.simulation.backend import Backend, Outcome
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.silos import SimulatedTask, SimulatedUpdate


class Traffic:
    """A simulation's backend that counts bytes of tensors on their way; headers, signatures and scalars have none.

    :ivar up: bytes that all silos have sent.
    :ivar handed: bytes of what all tasks handed out.
    :ivar fetched: of these, what a silo did not have from its task before, which is what a guard keeps.
    :ivar exchanges: tasks that were handed out.
    """

    def __init__(self, backend: Backend) -> None:
        self.up = self.handed = self.fetched = self.exchanges = 0
        self._backend = backend
        self._kept: dict[str, set[str]] = {}
        self._turns: set[tuple[str, int]] = set()

    @classmethod
    def of(cls, simulation: Simulation) -> Traffic:
        """Count what a simulation that has not begun moves from now on."""
        simulation.backend = counted = cls(simulation.backend)
        return counted

    def counted_state(self) -> dict[str, Any]:
        """Everything that was counted, as JSON can say it, for `go_on`."""
        return {
            "numbers": [self.up, self.handed, self.fetched, self.exchanges],
            "kept": {silo: sorted(digests) for silo, digests in self._kept.items()},
            "turns": sorted(self._turns),
        }

    def go_on(self, counted: Mapping[str, Any]) -> None:
        """Count on from what another one had counted."""
        self.up, self.handed, self.fetched, self.exchanges = counted["numbers"]
        self._kept = {silo: set(digests) for silo, digests in counted["kept"].items()}
        self._turns = {(silo, round) for silo, round in counted["turns"]}

    @property
    def turns(self) -> int:
        """Number of turns of silos: in one round each that takes part has one, whatever it is asked for."""
        return len(self._turns)

    @property
    def silos(self) -> int:
        """Silos that have taken part."""
        return len(self._kept)

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task, counted."""
        self._note(tasks)
        for silo, found in self._backend.run(tasks):
            self.up += found.size if isinstance(found, SimulatedUpdate) else 0
            yield silo, found

    def close(self) -> None:
        """Release the backend that computes."""
        self._backend.close()

    def _note(self, tasks: Iterable[SimulatedTask]) -> None:
        digests: dict[int, str] = {}  # of this exchange, whose tasks share their trees
        for task in tasks:
            trees = {id(tree): tree for tree in task.task.trees.values()}
            digests |= {key: _digest(tree) for key, tree in trees.items() if key not in digests}
            sizes = {digests[key]: _size(tree) for key, tree in trees.items()}
            kept = self._kept.get(task.silo, set())
            self.handed += sum(map(_size, task.task.trees.values()))
            self.fetched += sum(size for digest, size in sizes.items() if digest not in kept)
            self.exchanges += 1
            self._kept[task.silo] = set(sizes)
            self._turns.add((task.silo, task.task.round))


def _size(tree: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in tree.values())


def _digest(tree: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name, array in tree.items():
        found.update(f"{name} {array.dtype} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()
