"""How far a reader has to go who follows one value through the code, counted in a real job in memory.

    python -m tests.call_paths

Followed are the silos' `updates`, from the call of `Workflow.fold` to its return, and a silo's `task`, from the call
of `TaskRunner.run` to its return: of the last round of training, in the first silo.

The path is a reader's, who opens the definition of whatever the value goes to, in the order of first calls, and each
once: the functions of the product that are called with the value, as an argument, as a variable that a function within
another has of it, or as `self`. An object that has the value as an attribute is the value as well (`ReceivedExchange`,
`Work`, what a server half reads), and so is what a transform makes of it, which is of the same type. Not counted are
lambdas and comprehensions, which stand where they are read already, methods that a dataclass has by itself, and other
packages.

Of the path's files two figures follow: how many there are, and how often a function is in a file that the reader has
left before, and has to come back to.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from fedsilo.engine.workflow import Workflow
from fedsilo.methods.interface import Exchange, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.runner import TaskRunner
from fedsilo.simulation.simulate import simulate
from fedsilo.updates.round_updates import RoundUpdates
from tests.feature_pairs import manifest_in, name_of
from tests.paths import ROOT

PACKAGES = ("fedsilo", "aggregator", "silo-agent", "operator")

JOBS: Mapping[str, frozenset[str]] = {
    "plain": frozenset(),
    "open updates": frozenset(
        {
            "median",
            "upload-topk",
            "download-bfloat16",
            "frozen",
            "kept",
            "standardised",
            "silos-score",
            "best",
        }
    ),
    "private sums": frozenset({"secure", "private-examples", "clipping", "frozen", "kept", "best"}),
}
"""Jobs by what their updates are: without features, with most of those of open updates, and with most of the others."""


@dataclass(frozen=True)
class FollowedValue:
    """A value that is followed.

    :param kind: its type.
    :param owner: of the function in which it is followed, from its call to its return.
    :param asked: step and round of a call of the function.
    """

    name: str
    kind: type
    owner: type
    function: str
    asked: Callable[..., tuple[str, int]]


def exchange_of(_: Workflow, state: State, exchange: Exchange, *__: Any) -> tuple[str, int]:
    """Step and round of what is folded."""
    return exchange.phase.step, exchange.round


def task_of(_: TaskRunner, task: SiloTask, *__: Any) -> tuple[str, int]:
    """Step and round of what is run."""
    return task.step, task.round


UPDATES = FollowedValue("updates in Workflow.fold", RoundUpdates, Workflow, "fold", exchange_of)
TASK = FollowedValue("task in TaskRunner.run", SiloTask, TaskRunner, "run", task_of)

GOALS: Mapping[str, tuple[int, int]] = {UPDATES.name: (8, 2), TASK.name: (10, 4)}
"""Value -> files, and returns, that a reader should have at most."""


@dataclass
class ReadersPath:
    """The functions that a value has gone to, in order: file and name."""

    steps: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def visits(self) -> list[str]:
        """The files, as the reader opens them."""
        return [file for file, _ in groupby(file for file, _ in self.steps)]

    @property
    def files(self) -> int:
        """Number of different files on the path."""
        return len(set(self.visits))

    @property
    def returns(self) -> int:
        """Visits of a file that was left before."""
        return len(self.visits) - self.files

    def lines(self) -> Iterator[str]:
        """The path for people; what comes back is marked."""
        seen = set[str]()
        for file, steps in groupby(self.steps, key=lambda step: step[0]):
            mark = "<-" if file in seen else "  "
            seen.add(file)
            yield f"    {mark} {file}: {', '.join(name for _, name in steps)}"


def path_of(value: FollowedValue, job: frozenset[str]) -> ReadersPath:
    """The path of a value in a job, which is simulated."""
    found: dict[int, ReadersPath] = {}
    original = getattr(value.owner, value.function)

    def follow_call(*arguments: Any) -> Any:
        step, round = value.asked(*arguments)
        if step != "train" or round in found:
            return original(*arguments)
        found[round] = ReadersPath()
        with following(value.kind, found[round]):
            return original(*arguments)

    with tempfile.TemporaryDirectory() as name, mock.patch.object(value.owner, value.function, follow_call):
        directory = Path(name)
        simulate(manifest_in(directory, job), directory, directory / "simulated")
    return found[max(found)]


@contextmanager
def following(kind: type, path: ReadersPath) -> Iterator[None]:
    """A block whose calls are followed."""

    def trace_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        file = product_file(code.co_filename)
        if file is not None and any(is_value(found, kind) for found in frame.f_locals.values()):
            path.steps.setdefault((file, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(trace_call)
    try:
        yield
    finally:
        sys.setprofile(before)


def product_file(name: str) -> str | None:
    """A file of the product, from the repository's root; None of any other."""
    try:
        relative = Path(name).relative_to(ROOT)
    except ValueError:
        return None
    return str(relative) if relative.parts[0] in PACKAGES else None


def is_value(found: object, kind: type, depth: int = 2) -> bool:
    """Whether it is the value, or one of the product's objects that have it."""
    if isinstance(found, kind):
        return True
    if depth == 0 or isinstance(found, type) or not type(found).__module__.startswith("fedsilo"):
        return False
    return any(is_value(one, kind, depth - 1) for one in getattr(found, "__dict__", {}).values())


def main() -> None:
    """Print all paths, each with what its goal is."""
    for value in (UPDATES, TASK):
        files, returns = GOALS[value.name]
        for job, chosen in JOBS.items():
            path = path_of(value, chosen)
            figures = f"{path.files} files, {path.returns} returns (goal: {files} and {returns})"
            print(f"{value.name}, job {job!r} with {name_of(chosen)}: {figures}")
            print("\n".join(path.lines()))


if __name__ == "__main__":
    main()
