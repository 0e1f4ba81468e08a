"""Bytes and accuracy of each encoding of `spec.communication`, for three methods on MNIST and CIFAR-10.

    python -m benchmarks.communication --data FOLDER              # runs what is missing, as lines of JSON
    python -m benchmarks.communication --report                   # the table and the picture of what has run

FOLDER holds the datasets as `python -m benchmarks.tables` reads them. Runs are simulations in this process, one after
the other, with the tensors of the wire; each is a line of `docs/results/communication.jsonl`, and what stands there is
not run again. Runs are ordered so that an interrupted campaign has whole seeds first. `--rates` measures CPU seconds of
encoding and decoding a megabyte instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.communication_report import report
from benchmarks.tables.datasets import DATASETS
from benchmarks.tables.results import machine
from benchmarks.traffic import Traffic
from fedsilo.api.communication import UploadSpec
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.encodings import encoding_of
from fedsilo.encodings.encoding import in_memory_parts
from fedsilo.errors import SiloFailed
from fedsilo.simulation.simulate import open_simulation
from fedsilo.wire import TensorSpec

RUNS = Path(__file__).parents[1] / "docs" / "results" / "communication.jsonl"

SILOS = 10
SEEDS = (1, 2, 3)
BF16: dict[str, Any] = {"encoding": "bfloat16"}
ZSTD: dict[str, Any] = {"compression": "zstd"}

ENCODINGS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, zstd": {"upload": ZSTD, "download": ZSTD},
    "bfloat16": {"upload": BF16, "download": BF16},
    "float16": {"upload": {"encoding": "float16"}, "download": {"encoding": "float16"}},
    "int8 up": {"upload": {"encoding": "int8"}, "download": BF16},
    "int8 up, zstd": {"upload": {"encoding": "int8"} | ZSTD, "download": BF16 | ZSTD},
    "topk 10 % up": {"upload": {"encoding": "topk", "fraction": 0.1}, "download": BF16},
    "topk 1 % up": {"upload": {"encoding": "topk", "fraction": 0.01}, "download": BF16},
    "topk 1 % up, no feedback": {
        "upload": {"encoding": "topk", "fraction": 0.01, "errorFeedback": False},
        "download": BF16,
    },
    "int8 up, no delta": {
        "upload": {"encoding": "int8", "delta": False, "errorFeedback": False},
        "download": BF16,
    },
    "int8 both": {"upload": {"encoding": "int8"}, "download": {"encoding": "int8"}},
    "topk 10 % up, zstd": {
        "upload": {"encoding": "topk", "fraction": 0.1} | ZSTD,
        "download": BF16 | ZSTD,
    },
}

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedconcat": {"clusters": 2},
    "scaffold": {},
}


@dataclass(frozen=True)
class Scale:
    """How much of a dataset is used, and for how long.

    :param samples: training images, as many of each class.
    :param test: test images.
    """

    samples: int
    test: int
    rounds: int


SCALES = {"mnist": Scale(2000, 2000, 10), "cifar10": Scale(4000, 2000, 15)}


@dataclass(frozen=True)
class Cell:
    """What one run is of."""

    dataset: str
    method: str
    encoding: str
    seed: int


def cells() -> Iterator[Cell]:
    """All cells of the campaign, ordered so that one seed of everything comes first."""
    for seed in SEEDS:
        for dataset in SCALES:
            for method in METHODS:
                yield from (Cell(dataset, method, encoding, seed) for encoding in ENCODINGS)


def manifest(cell: Cell, folder: Path) -> JobManifest:
    """Manifest of the cell's job and its silos."""
    scale, known = SCALES[cell.dataset], DATASETS[cell.dataset]
    spec = {
        "method": {"name": cell.method, "config": configuration(cell)},
        "model": {"name": "lenet"},
        "data": {
            "dataset": "images",
            "classes": known.classes,
            "inputShape": list(known.shape),
            "validationFraction": 0,
        },
        "training": {
            "rounds": scale.rounds,
            "device": "cpu",
            "batchSize": 32,
            "seed": cell.seed,
            "optimizer": {"learningRate": 0.05, "momentum": 0.0, "weightDecay": 0.0},
        },
        "silos": {"refs": [{"namespace": "silos", "name": f"s{index}"} for index in range(SILOS)]},
        "participation": {"roundDeadline": "10m"},
        "communication": ENCODINGS[cell.encoding] or None,
        "evaluation": {"every": scale.rounds, "testDataset": "test"},
        "aggregator": {"datasets": [images("test", "test", scale.test, cell, folder)]},
    }
    job = {"metadata": {"namespace": "federation", "name": "images"}, "spec": spec}
    silos = tuple(silo(index, cell, folder) for index in range(SILOS))
    return JobManifest("communication", FederatedJob.model_validate(job), silos)


def configuration(cell: Cell) -> dict[str, Any]:
    """The method's own, with half of the rounds for FedConcat's encoders."""
    if cell.method != "fedconcat":
        return dict(METHODS[cell.method])
    rounds = SCALES[cell.dataset].rounds
    return {**METHODS[cell.method], "encoderRounds": rounds // 2, "classifierRounds": rounds - rounds // 2}


def silo(index: int, cell: Cell, folder: Path) -> Silo:
    """One that has its part of the training images."""
    partition = {"scheme": "dirichlet", "silos": SILOS, "seed": cell.seed, "config": {"beta": 0.5}}
    part = images("images", "train", SCALES[cell.dataset].samples, cell, folder)
    return Silo.model_validate(
        {
            "metadata": {"namespace": "silos", "name": f"s{index}"},
            "spec": {"datasets": [part | {"partition": partition | {"index": index}}]},
        }
    )


def images(name: str, split: str, samples: int, cell: Cell, folder: Path) -> dict[str, Any]:
    """A dataset of the cell's images."""
    config = {"dataset": cell.dataset, "folder": str(folder), "normalised": True}
    return {
        "name": name,
        "loader": "python:benchmarks.tables.datasets:load",
        "config": config | {"split": split, "samples": samples},
    }


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Run a cell and return its line of the results, without an accuracy where training has diverged."""
    began, cpu = time.time(), time.process_time()
    with (
        tempfile.TemporaryDirectory(prefix="fedsilo-") as directory,
        closing(open_simulation(manifest(cell, folder), folder, Path(directory))) as simulation,
    ):
        traffic = Traffic.of(simulation)
        for _ in simulation.run():
            pass
        failure = simulation.failure
        if failure is not None and not (isinstance(failure, SiloFailed) and "diverged" in str(failure)):
            raise failure
        accuracy = round(simulation.history()[-1]["metrics"]["accuracy"], 5) if failure is None else None
    return {
        **asdict(cell),
        **asdict(SCALES[cell.dataset]),
        "silos": SILOS,
        "accuracy": accuracy,
        "up": traffic.up,
        "down": traffic.handed,
        "exchanges": traffic.exchanges,
        "seconds": round(time.time() - began, 1),
        "cpu": round(time.process_time() - cpu, 1),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of the file, as far as they are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def campaign(wanted: Iterable[Cell], folder: Path, path: Path) -> None:
    """Run what the file has no line of."""
    there = {tuple(line[name] for name in Cell.__annotations__) for line in read(path)}
    for cell in wanted:
        if (cell.dataset, cell.method, cell.encoding, cell.seed) in there:
            continue
        line = run(cell, folder)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        outcome = "diverged" if line["accuracy"] is None else f"{line['accuracy']:.1%}"
        text = f"{cell.dataset} {cell.method} {cell.encoding} {cell.seed}: {outcome}, {line['cpu']} CPU s"
        print(text, file=sys.stderr, flush=True)


def rates(numbers: int = 1 << 22, repeats: int = 5) -> dict[str, Mapping[str, float]]:
    """CPU seconds for a megabyte of float32 that encoding, checking and decoding take, the least of some repeats."""
    values = np.random.default_rng(0).normal(0, 0.02, numbers).astype(np.float32)
    tensor = TensorSpec("w", values.shape, "float32")
    found: dict[str, Mapping[str, float]] = {}
    given = [UploadSpec(encoding=name) for name in ("bfloat16", "float16", "int8", "topk")]
    given += [UploadSpec(encoding="topk", fraction=0.1)]
    given += [one.model_copy(update={"compression": "zstd"}) for one in (UploadSpec(), *given)]
    for spec in given:
        encoding = encoding_of(spec)
        assert encoding is not None
        seconds: dict[str, list[float]] = {"encode": [], "check": [], "decode": []}
        for _ in range(repeats):
            began = time.process_time()
            parts = encoding.encode(values)
            seconds["encode"].append(time.process_time() - began)
            began = time.process_time()
            encoding.check(tensor, in_memory_parts(parts))
            seconds["check"].append(time.process_time() - began)
            began = time.process_time()
            encoding.decode(parts, values.shape)
            seconds["decode"].append(time.process_time() - began)
        part = sum(array.nbytes for array in parts) / values.nbytes
        name = encoding.name if spec.fraction is None else f"{encoding.name}, {spec.fraction:g}"
        found[name] = {"part": part} | {
            what: min(times) / values.nbytes * 1e6 for what, times in seconds.items()
        }
    return found


def main() -> None:
    """Run the missing cells, or report those on file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the datasets")
    parser.add_argument("--runs", type=Path, default=RUNS, help="file of the runs")
    parser.add_argument(
        "--report", action="store_true", help="print the table, and draw the picture beside the runs"
    )
    parser.add_argument("--rates", action="store_true", help="print CPU seconds of a megabyte")
    parser.add_argument("--datasets", nargs="+", choices=list(SCALES), default=list(SCALES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--encodings", nargs="+", choices=list(ENCODINGS), default=list(ENCODINGS))
    args = parser.parse_args()
    if args.rates:
        for name, found in rates().items():
            figures = " | ".join(f"{found[what] * 1000:.2f}" for what in ("encode", "check", "decode"))
            print(f"| {name} | {found['part']:.1%} | {figures} |")
    elif args.report:
        print(report(read(args.runs), list(ENCODINGS), args.runs.with_suffix(".png")))
    elif args.data is None:
        parser.error("--data: name the folder of the datasets, or give --report or --rates")
    else:
        wanted = [
            cell
            for cell in cells()
            if cell.dataset in args.datasets
            and cell.method in args.methods
            and cell.encoding in args.encodings
        ]
        campaign(wanted, args.data.resolve(), args.runs)


if __name__ == "__main__":
    main()
