"""What is kept of a run: one JSON file, complete after every case, so that a killed run goes on where it was."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from benchmarks.gpu.cases import Figures, Size
from benchmarks.gpu.devices import Device

PACKAGES = ("torch", "torchvision", "numpy", "opacus", "fedsilo")


@dataclass(frozen=True)
class Outcome:
    """How a case ended: with figures, because it does not apply, or by an error.

    :param goals: that its figures have missed, as texts.
    :param unfinished: whether a run that goes on has more to do.
    """

    seconds: float = 0.0
    figures: Figures | None = None
    skipped: str | None = None
    error: str | None = None
    goals: tuple[str, ...] = ()
    unfinished: bool = False

    @property
    def done(self) -> bool:
        """Whether a run that goes on leaves it as it is; what did not apply may apply now."""
        return self.figures is not None and not self.unfinished


@dataclass
class Record:
    """One run at one commit on one device.

    :param parts: name of a part -> name of a case -> how it ended.
    :param late: names of parts that ran out of time -> what was not finished.
    :param number: of several records of one commit, device and size, of which none can go on with another.
    """

    commit: str
    date: str
    size: Size
    device: Mapping[str, Any]
    versions: Mapping[str, str]
    parts: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    number: int = 1

    @property
    def file_name(self) -> str:
        """By commit, device, size and number."""
        name = f"{self.commit} {self.device['name']} {self.size}" + (
            f" {self.number}" if self.number > 1 else ""
        )
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"

    def goes_on(self, other: Record) -> bool:
        """Whether this run measures what another one has begun to: the same code, by the same versions, on its like."""
        known = self.commit != "unknown" and not self.commit.endswith("-dirty")
        return known and (self.commit, self.size, dict(self.device), dict(self.versions)) == (
            other.commit,
            other.size,
            dict(other.device),
            dict(other.versions),
        )

    def finished_cases(self, part: str) -> list[str]:
        """Cases that need not be run again."""
        return [name for name, outcome in self.parts.get(part, {}).items() if outcome.done]

    @property
    def faults(self) -> list[str]:
        """What went wrong, a text each."""
        errors = [
            f"{part}: {name}: {outcome.error}"
            for part, cases in self.parts.items()
            for name, outcome in cases.items()
            if outcome.error is not None
        ]
        return errors + [f"{part}: {what}" for part, what in self.late.items()]

    def write(self, folder: Path) -> Path:
        """Write the file in one piece."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(self._document(), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        return path

    def _document(self) -> dict[str, Any]:
        found = asdict(self)
        for cases in found["parts"].values():
            for name, outcome in cases.items():
                cases[name] = {key: value for key, value in outcome.items() if value not in (None, (), False)}
        return found

    @classmethod
    def read(cls, path: Path) -> Self:
        """Record of a run as read from the file that `write` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        parts = {
            part: {name: _outcome(outcome) for name, outcome in cases.items()}
            for part, cases in found.pop("parts").items()
        }
        return cls(**found, parts=parts)


def _outcome(found: Mapping[str, Any]) -> Outcome:
    return Outcome(**{**found, "goals": tuple(found.get("goals", ()))})


def read_all(folder: Path) -> list[Record]:
    """All records of a folder, the newest first."""
    found = [Record.read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda record: record.date, reverse=True)


def device_facts(device: Device, driver: str) -> dict[str, Any]:
    """The device and its machine, without anything that names the latter."""
    return {
        "kind": device.kind,
        "name": device.name,
        "memory": device.memory,
        "driver": driver,
        "cuda": device.cuda,
        "cores": os.cpu_count(),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def begin_record(commit: str, size: Size, device: dict[str, Any], into: Path) -> Record:
    """The record of a run: a new one, or one that goes on with what an earlier run has measured of the same."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = Record(commit, now, size, device, versions())
    while (path := into / record.file_name).exists():
        kept = Record.read(path)
        if record.goes_on(kept):
            return replace(record, parts=kept.parts, late=kept.late)
        record = replace(record, number=record.number + 1)
    return record
