"""What is kept of a run: one JSON file, complete after every case, so that a killed run goes on where it was."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
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
    """

    seconds: float = 0.0
    figures: Figures | None = None
    skipped: str | None = None
    error: str | None = None
    goals: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether a run that goes on leaves it as it is."""
        return self.error is None


@dataclass
class Record:
    """One run at one commit on one device.

    :param parts: name of a part -> name of a case -> how it ended.
    :param late: names of parts that ran out of time -> what was not finished.
    """

    commit: str
    date: str
    size: Size
    device: Mapping[str, Any]
    versions: Mapping[str, str]
    parts: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """By commit, device and size; the same again is a run that goes on."""
        slug = re.sub(r"[^a-z0-9]+", "-", str(self.device["name"]).lower()).strip("-")
        return f"{self.commit}-{slug}-{self.size}.json"

    def done(self, part: str) -> list[str]:
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
                cases[name] = {key: value for key, value in outcome.items() if value not in (None, ())}
        return found

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write` wrote."""
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


def described(device: Device, driver: str) -> dict[str, Any]:
    """The device and its machine, without anything that names the latter."""
    return {
        "kind": device.kind,
        "name": device.name,
        "memory": device.memory,
        "driver": driver,
        "cores": os.cpu_count(),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Of Python and of the packages that compute."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
