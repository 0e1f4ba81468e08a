"""What is done to a federation: one fault at one durable step, or to its network."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from typing_extensions import override

from fedsilo.files.durable import DiskStep

KILL_BEFORE, KILL_AFTER = "kill-before", "kill-after"
TORN_WRITE, FLIPPED_BIT = "torn-write", "flipped-bit"
FULL_DISK, IO_ERROR = "full-disk", "io-error"
POWER_CUT = "power-cut"
CLOCK_JUMP = "clock-jump"
NETWORK_CUT, OTHER_ADDRESS = "network-cut", "other-address"

KINDS = {
    KILL_BEFORE: "the process is killed before the step",
    KILL_AFTER: "the process is killed after the step",
    TORN_WRITE: "the process is killed while it writes: a part of it is there",
    FLIPPED_BIT: "the machine stops after the step, and one bit of the file is another when it starts again",
    FULL_DISK: "there is no space for this step and those that follow, for a while",
    IO_ERROR: "the step fails with an input/output error, once",
    POWER_CUT: "the machine loses its power; of what was not synced, any part is left",
    CLOCK_JUMP: "the machine's clock is ten minutes wrong for a while, from the step on",
    NETWORK_CUT: "a silo's connections break after so many bytes, and do so again",
    OTHER_ADDRESS: "the aggregator is killed after the step and comes back at another address of the same name",
}
"""Kind of a fault -> what it is."""

OF_A_MACHINE = frozenset({POWER_CUT, FLIPPED_BIT})
"""Kinds that stop every process of a machine: a silo's guard and trainer together."""

NEEDS_SPACE = frozenset({"create", "append", "sync", "link", "make-directory", "rename"})
"""Operations that fail when a disk is full."""

_TEMPORARY_NAME = re.compile(r"^\.[0-9a-f]{16}\.tmp$")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Place:
    """A durable step of a run, by a name that is the same in every run.

    :param role: `aggregator`, or a silo's name and `guard` or `trainer`.
    :param step: operation and paths in the machine's volume, without what is random.
    :param occurrence: how often the process has come by, from 1.
    """

    role: str
    step: str
    occurrence: int

    @override
    def __str__(self) -> str:
        return f"{self.role}: {self.step} #{self.occurrence}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read what `str` has written."""
        role, _, rest = text.partition(": ")
        step, _, occurrence = rest.rpartition(" #")
        return cls(role, step, int(occurrence))

    @property
    def operation(self) -> str:
        return self.step.partition(" ")[0]

    @property
    def machine(self) -> str:
        """The machine that the role runs on."""
        return self.role.partition(" ")[0]


@dataclass(frozen=True)
class Fault:
    """One fault of a campaign: what is done to a federation, and where.

    :param place: where; of a network cut only the role counts, whose connections are cut.
    :param seed: decides whatever else is random about it.
    """

    method: str
    kind: str
    place: Place
    seed: int

    @property
    def command(self) -> str:
        """The command that does it again."""
        return (
            f"python -m tests.faults --method {self.method} --kind {self.kind} "
            f"--step '{self.place}' --seed {self.seed}"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Fault:
        document = json.loads(text)
        return cls(**{**document, "place": Place(**document["place"])})


def step_name(step: DiskStep, volume: Path) -> str:
    """Operation and paths of a step, without what is random."""
    names = [_without_chance(path, volume) for path in (step.path, step.target) if path is not None]
    return f"{step.operation} {' -> '.join(names)}"


def kinds_of(place: Place) -> list[str]:
    """The kinds of faults that make sense at a step."""
    found = [KILL_BEFORE, KILL_AFTER, IO_ERROR, POWER_CUT]
    path = place.step.split()[-1]
    if place.operation in NEEDS_SPACE:
        found.append(FULL_DISK)
    if place.operation == "append" or (place.operation == "sync" and path.endswith((".tmp", ".jsonl"))):
        found.append(TORN_WRITE)
    named = place.operation in ("rename", "link") and not path.endswith(".tmp")
    if named or place.operation == "append" or (place.operation == "sync" and path.endswith(".jsonl")):
        found.append(FLIPPED_BIT)
    if not place.role.endswith("trainer"):
        found.append(CLOCK_JUMP)
    if place.role == "aggregator":
        found.append(OTHER_ADDRESS)
    return found


def _without_chance(path: Path, volume: Path) -> str:
    shown = path.relative_to(volume) if path.is_relative_to(volume) else path
    parts = (
        "*.tmp" if _TEMPORARY_NAME.fullmatch(part) else _DIGEST.sub("<digest>", part) for part in shown.parts
    )
    return "/".join(parts) or "."
