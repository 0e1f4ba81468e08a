"""Runs as lines of JSON, one file per load, to which every command adds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.transport.federation import Load, RoleUsage, RunMeasurement
from benchmarks.transport.model import SentModel
from fedsilo.files.digests import SHA256

FIELDS = tuple(field.name for field in fields(RunMeasurement))


def name_of(load: Load) -> str:
    """Name of the load's files, such as `8x100` or `8x100-blake3`."""
    megabytes = load.model.size / 1e6
    size = f"{megabytes:.0f}" if megabytes >= 10 else f"{megabytes:.2g}"
    return f"{load.silos}x{size}{'' if load.digest == SHA256 else f'-{load.digest}'}"


def append(path: Path, load: Load, pair: int, run: RunMeasurement, facts: Mapping[str, Any]) -> None:
    """Append one run to the file of results, in JSON.

    :param pair: its number within the command.
    :param facts: command, machine and date.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {**facts, "pair": pair, "load": asdict(load), **asdict(run)}
    with path.open("a") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def read(path: Path) -> tuple[Load, list[dict[str, RunMeasurement]]]:
    """The load of a file, and its pairs."""
    pairs: dict[tuple[str, int], dict[str, RunMeasurement]] = defaultdict(dict)
    loads = []
    for line in path.read_text().splitlines():
        found = json.loads(line)
        model = SentModel(**found["load"].pop("model"))
        loads.append(Load(model, **found["load"]))
        found["roles"] = {role: RoleUsage(**use) for role, use in found["roles"].items()}
        run = RunMeasurement(**{name: found[name] for name in FIELDS if name in found})
        pairs[found["date"], found["pair"]][run.system] = run
    return loads[-1], list(pairs.values())
