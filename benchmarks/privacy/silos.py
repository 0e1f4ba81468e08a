"""Accuracy of FedAvg whose noise hides whole silos, beside the same job without, and with clipping alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.privacy.accuracy import last_accuracy
from benchmarks.privacy.campaign import read
from benchmarks.tables.results import machine
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo

SILOS = 20
SEEDS = (1, 2, 3)
NORM = 1.0
"""What a silo's change of the model is clipped to."""

PROTECTIONS = ("without", "clipped, without noise", "epsilon 50", "epsilon 20", "epsilon 8")


@dataclass(frozen=True)
class Cell:
    """What one run is of."""

    protection: str
    seed: int


def cells() -> Iterator[Cell]:
    """All cells, ordered so that one seed of everything comes first."""
    for seed in SEEDS:
        yield from (Cell(protection, seed) for protection in PROTECTIONS)


def manifest(cell: Cell) -> JobManifest:
    """Manifest of the cell's job: digits, divided among the silos by a Dirichlet distribution."""
    spec: dict[str, Any] = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [64]}},
        "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8], "validationFraction": 0},
        "training": {
            "rounds": 20,
            "localEpochs": 2,
            "seed": cell.seed,
            "device": "cpu",
            "optimizer": {"learningRate": 0.05, "momentum": 0.9, "weightDecay": 0},
        },
        "silos": {"refs": [{"namespace": "silos", "name": f"s{index}"} for index in range(SILOS)]},
        "aggregation": {"weights": "uniform"},
        "participation": {"roundDeadline": "10m"},
        "evaluation": {"every": 1000, "testDataset": "test"},
        "aggregator": {
            "datasets": [{"name": "test", "loader": "sklearn:digits", "config": {"split": "test"}}]
        },
    }
    if cell.protection.startswith("clipped"):
        spec["aggregation"] |= {"rule": {"name": "norm-clipping", "norm": NORM}}
    elif cell.protection.startswith("epsilon"):
        epsilon = float(cell.protection.removeprefix("epsilon "))
        private = {"unit": "silo", "epsilon": epsilon, "delta": 0.01, "maxUpdateNorm": NORM}
        spec["privacy"] = {"differentialPrivacy": private}
    job = {"metadata": {"namespace": "federation", "name": "private"}, "spec": spec}
    return JobManifest("privacy", FederatedJob.model_validate(job), tuple(map(_silo, range(SILOS))))


def _silo(index: int) -> Silo:
    partition = {"scheme": "dirichlet", "silos": SILOS, "seed": 1, "index": index, "config": {"beta": 0.5}}
    digits = {"name": "digits", "loader": "sklearn:digits", "config": {"split": "train"}}
    policy = {"payloadKinds": ["model"], "minSamplesPerUpdate": 1}
    return Silo.model_validate(
        {
            "metadata": {"namespace": "silos", "name": f"s{index}"},
            "spec": {"datasets": [digits | {"partition": partition}], "policy": policy},
        }
    )


def campaign(path: Path) -> None:
    """Run what the file has no line of, and append it."""
    done = {Cell(line["protection"], line["seed"]) for line in read(path)}
    for cell in cells():
        if cell in done:
            continue
        accuracy = last_accuracy(manifest(cell), Path())
        stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(cell), "accuracy": accuracy, **stamp}) + "\n")
        print(f"{cell.protection}, seed {cell.seed}: {accuracy:.1%}", file=sys.stderr, flush=True)


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, in percent."""
    rows = ["| | accuracy |", "|---|---|"]
    for protection in PROTECTIONS:
        found = [100 * line["accuracy"] for line in lines if line["protection"] == protection]
        spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
        rows.append(f"| {protection} | {f'{fmean(found):.1f}{spread}' if found else 'not run'} |")
    return "\n".join(rows)
