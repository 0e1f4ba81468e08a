"""Accuracy of three methods with example-level differential privacy, beside the same jobs without."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.privacy.campaign import EPSILONS, read
from benchmarks.tables.results import machine
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.simulation.simulate import open_simulation

SILOS = 4
SEEDS = (1, 2, 3)
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedconcat": {"clusters": 2, "encoderRounds": 7, "classifierRounds": 3},
    "ccvr": {"covariance": "none"},
}
ROUNDS = 10


@dataclass(frozen=True)
class Scale:
    """How much of a dataset is used, by which network.

    :param samples: training images of all silos together.
    :param delta: less than one over the images of any silo.
    """

    samples: int
    test: int
    batch: int
    shape: tuple[int, int, int]
    model: Mapping[str, Any]
    rate: float
    delta: float


LENET = {"name": "lenet"}
SCALES = {
    "digits": Scale(1437, 360, 32, (1, 8, 8), {"name": "mlp", "config": {"hidden": [64]}}, 0.1, 1e-3),
    "mnist": Scale(6000, 2000, 100, (1, 28, 28), LENET, 0.05, 1e-4),
    "cifar10": Scale(6000, 2000, 100, (3, 32, 32), LENET, 0.02, 1e-4),
}


@dataclass(frozen=True)
class Cell:
    """What one run is of."""

    dataset: str
    method: str
    epsilon: float | None
    seed: int


def cells(dataset: str) -> Iterator[Cell]:
    """All cells of a dataset, ordered so that one seed of everything comes first."""
    for seed in SEEDS:
        for method in METHODS:
            yield from (Cell(dataset, method, epsilon, seed) for epsilon in EPSILONS)


def manifest(cell: Cell, folder: Path) -> JobManifest:
    """Manifest of the cell's job and its silos."""
    scale = SCALES[cell.dataset]
    spec: dict[str, Any] = {
        "method": {"name": cell.method, "config": METHODS[cell.method]},
        "model": scale.model,
        "data": {
            "dataset": "images",
            "classes": 10,
            "inputShape": list(scale.shape),
            "validationFraction": 0,
        },
        "training": {
            "rounds": ROUNDS,
            "localEpochs": 1,
            "batchSize": scale.batch,
            "seed": cell.seed,
            "device": "cpu",
            "optimizer": {"learningRate": scale.rate, "momentum": 0.9, "weightDecay": 0},
        },
        "silos": {"refs": [{"namespace": "silos", "name": f"s{index}"} for index in range(SILOS)]},
        "participation": {"roundDeadline": "10m"},
        "evaluation": {"every": 1000, "testDataset": "test"},
        "aggregator": {"datasets": [_images("test", "test", scale.test, cell.dataset, folder)]},
    }
    if cell.epsilon is not None:
        private = {"unit": "example", "epsilon": cell.epsilon, "delta": scale.delta}
        spec["privacy"] = {"differentialPrivacy": private}
    job = {"metadata": {"namespace": "federation", "name": "private"}, "spec": spec}
    silos = tuple(_silo(index, cell, folder) for index in range(SILOS))
    return JobManifest("privacy", FederatedJob.model_validate(job), silos)


def _silo(index: int, cell: Cell, folder: Path) -> Silo:
    partition = {
        "scheme": "dirichlet",
        "silos": SILOS,
        "seed": cell.seed,
        "index": index,
        "config": {"beta": 0.5},
    }
    images = _images("images", "train", SCALES[cell.dataset].samples, cell.dataset, folder)
    kinds = ["model", "class_counts", "class_means", "class_covariances"]
    return Silo.model_validate(
        {
            "metadata": {"namespace": "silos", "name": f"s{index}"},
            "spec": {"datasets": [images | {"partition": partition}], "policy": {"payloadKinds": kinds}},
        }
    )


def _images(name: str, split: str, samples: int, dataset: str, folder: Path) -> dict[str, Any]:
    if dataset == "digits":
        return {"name": name, "loader": "sklearn:digits", "config": {"split": split}}
    config = {"dataset": dataset, "folder": str(folder), "normalised": True}
    return {
        "name": name,
        "loader": "python:benchmarks.tables.datasets:load",
        "config": config | {"split": split, "samples": samples},
    }


def campaign(dataset: str, folder: Path, path: Path) -> None:
    """Run what the file has no line of, and append it."""
    done = {Cell(**{name: line[name] for name in Cell.__annotations__}) for line in read(path)}
    for cell in cells(dataset):
        if cell in done:
            continue
        began = time.monotonic()
        accuracy = last_accuracy(manifest(cell, folder), folder)
        seconds = time.monotonic() - began
        stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine()}
        line = {**asdict(cell), "accuracy": accuracy, "seconds": round(seconds, 1), **stamp}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        text = f"{cell.dataset}, {cell.method}, epsilon {cell.epsilon}, seed {cell.seed}: {accuracy:.1%}"
        print(f"{text} in {seconds:.0f} s", file=sys.stderr, flush=True)


def last_accuracy(job: JobManifest, folder: Path) -> float:
    """Accuracy after the last round of a job, simulated.

    :param folder: from which the manifest's files are read.
    """
    with (
        TemporaryDirectory(prefix="fedsilo-") as directory,
        closing(open_simulation(job, folder, Path(directory))) as simulation,
    ):
        for _ in simulation.run():
            pass
        if simulation.failure is not None:
            raise simulation.failure
        return float(simulation.history()[-1]["metrics"]["accuracy"])


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, in percent."""
    heads = ["none" if epsilon is None else f"epsilon {epsilon:g}" for epsilon in EPSILONS]
    rows = [f"| | | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for dataset in SCALES:
        for method in METHODS:
            figures = []
            for epsilon in EPSILONS:
                wanted = (dataset, method, epsilon)
                found = [
                    100 * line["accuracy"]
                    for line in lines
                    if (line["dataset"], line["method"], line["epsilon"]) == wanted
                ]
                spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
                seeds = "" if len(found) == len(SEEDS) else f" ({len(found)} of {len(SEEDS)} seeds)"
                figures.append(f"{fmean(found):.1f}{spread}{seeds}" if found else "not run")
            rows.append(f"| {dataset} | {method} | {' | '.join(figures)} |")
    return "\n".join(rows)
