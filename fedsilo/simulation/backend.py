"""What executes the silos' tasks: this process, one silo after the other, or another backend beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from fedsilo.simulation.silos import SimulatedFailure, SimulatedSilo, SimulatedTask, SimulatedUpdate

Outcome = tuple[str, SimulatedUpdate | SimulatedFailure]
"""A silo and the result of its task."""


class Backend(Protocol):
    """Executes the tasks of one exchange at a time."""

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterable[Outcome]:
        """The outcome of each task, in whatever order they come."""

    def close(self) -> None:
        """Release processes, if there are any."""


class SequentialBackend:
    """The silos of this process, one after the other."""

    def __init__(self, silos: Mapping[str, SimulatedSilo]) -> None:
        self._silos = silos

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcomes in the order of the tasks."""
        for task in tasks:
            yield task.silo, self._silos[task.silo].answer(task)

    def close(self) -> None:
        """There is nothing to release."""
