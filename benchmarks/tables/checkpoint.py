"""An open cell on file: a simulated job between two rounds, so that several runs of a command finish it.

One `.npz` file: the tensors of the aggregator's state and of the silos' private ones, and a text of JSON with the rest.
It holds nothing that would be executed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.traffic import Traffic
from fedsilo.methods.state import State, Tree
from fedsilo.silo.policy import EgressTotals
from fedsilo.simulation.job import Progress, Simulation

TEXT = "text"
AGGREGATOR = "aggregator"
SILO = "silo "
"""Before a silo's name, in the name of the half that a state belongs to."""


SAVE_PAUSE_SECONDS = 10.0
"""Seconds of a cell that a killed process loses at most, beside those of the open round."""


@dataclass(frozen=True)
class OpenCell:
    """What a cell needs to go on.

    :param traffic: `Traffic.counted` of what was moved so far.
    :param seconds: wall time so far.
    :param cpu: processor time of the rounds so far, in seconds.
    """

    progress: Progress
    traffic: Mapping[str, Any]
    seconds: float
    cpu: float


def path_of(folder: Path, digest: str) -> Path:
    """Where the cell with this digest lies while it is open."""
    return folder / f"{digest[:16]}.npz"


def save(path: Path, found: OpenCell) -> None:
    """Write it in one piece: whatever ends the process leaves the file before or the new one."""
    progress = found.progress
    states = {AGGREGATOR: progress.state} | {SILO + silo: state for silo, state in progress.private.items()}
    order = [
        (half, tree, tensor)
        for half, state in states.items()
        for tree in state.trees
        for tensor in state.tree(tree)
    ]
    text = {
        "position": progress.position,
        "values": {half: state.values for half, state in states.items()},
        "trees": {half: list(state.trees) for half, state in states.items()},
        "sent": {
            silo: [sorted(sent.rounds), sent.size, sent.in_exchange] for silo, sent in progress.sent.items()
        },
        "history": progress.history,
        "traffic": found.traffic,
        "seconds": found.seconds,
        "cpu": found.cpu,
        "tensors": order,
    }
    arrays = {str(place): states[half].tree(tree)[tensor] for place, (half, tree, tensor) in enumerate(order)}
    arrays[TEXT] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def load(path: Path) -> OpenCell | None:
    """What was saved there; None where there is nothing."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        text = json.loads(arrays[TEXT].tobytes())
        trees = _trees(text, arrays)
    states = {half: State(trees[half], text["values"][half]) for half in text["values"]}
    progress = Progress(
        text["position"],
        states.pop(AGGREGATOR),
        {half.removeprefix(SILO): state for half, state in states.items()},
        {
            silo: EgressTotals(frozenset(rounds), size, here)
            for silo, (rounds, size, here) in text["sent"].items()
        },
        tuple(text["history"]),
    )
    return OpenCell(progress, text["traffic"], text["seconds"], text["cpu"])


def _trees(text: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, Tree]]:
    found: dict[str, dict[str, Tree]] = {
        half: {name: {} for name in names} for half, names in text["trees"].items()
    }
    for place, (half, tree, tensor) in enumerate(text["tensors"]):
        found[half][tree][tensor] = arrays[str(place)]
    return found


class KeptCell:
    """A cell that is run from where it stood on file, and put there again every `SAVE_PAUSE_SECONDS` and at a stop.

    :param path: of the file; None to keep nothing.
    :param began: when this run of the command turned to the cell, as `time.time` counts.
    """

    def __init__(self, path: Path | None, simulation: Simulation, traffic: Traffic, began: float) -> None:
        self._path, self._simulation, self._traffic, self._began = path, simulation, traffic, began
        self._before = None if path is None else load(path)
        self._reached = self._before
        self._cpu, self._saved = time.process_time(), time.monotonic()
        if self._before is not None:
            traffic.go_on(self._before.traffic)

    @property
    def seconds(self) -> float:
        """Wall time, with that of earlier runs."""
        return time.time() - self._began + (self._before.seconds if self._before else 0.0)

    @property
    def cpu(self) -> float:
        """Processor time of the rounds in seconds, with that of earlier runs."""
        return time.process_time() - self._cpu + (self._before.cpu if self._before else 0.0)

    def run(self) -> Iterator[int]:
        """The number of complete rounds, after every silo's update and every exchange."""
        begun = None if self._before is None else self._before.progress
        told = 0 if begun is None else len(begun.history)
        for _ in self._simulation.run(begun):
            progress = self._simulation.progress
            if progress is not None and len(progress.history) > told:
                told = len(progress.history)
                self._reached = OpenCell(progress, self._traffic.counted_state(), self.seconds, self.cpu)
                if time.monotonic() - self._saved >= SAVE_PAUSE_SECONDS:
                    self._save()
            yield told

    def _save(self) -> None:
        if self._path is not None and self._reached is not None:
            save(self._path, self._reached)
        self._saved = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep a cell that is not complete."""
        if error is not None:
            self._save()
