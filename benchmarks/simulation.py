"""Rounds per second of a hand-written loop, of the simulation in its forms, and of separate processes, on the same job.

    python -m benchmarks.simulation                              # 10 silos, synthetic images
    python -m benchmarks.simulation --mnist mnist.npz --silos 100 --sampled 10 --rounds 10
    python -m benchmarks.simulation --tabular --silos 100 --images 100 --batch 100

FedAvg with LeNet-5 (61,706 parameters), images of 28x28, two classes per silo (all, where there are fewer than ten),
batches of 32, one local epoch; or with a perceptron of 1,002 parameters over rows of 20 numbers in batches of 10, as
laboratories' tables are. Every way runs in a process of its own, has the same batches and ends with the same model,
which is checked; `model` is the time from the start of that process to the model's file, imports and data included, and
`in all` goes to the end of the process. `tuned` is a loop with all that a simulation can do without left out
(`benchmarks/tuned.py`); `command` is `fedsilo run --in-process`, the others are used as libraries. CPU seconds are
those of all processes of a way: on a machine that does other work they say more than the others. Run it from the
repository's root.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.hand_written import Clients, hand_written
from fedsilo.api.documents import documents_of
from fedsilo.api.loading import JobManifest, parse_manifest
from fedsilo.simulation.execution import ExecutionPlan

WAYS = (
    "hand-written",
    "hand-written, workers",
    "tuned, workers",
    "simulation",
    "simulation, workers",
    "simulation, batches",
    "command, workers",
    "processes",
)
ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1e-5
"""Largest difference of a weight from the hand-written loop's, of which some sum in another order."""


@dataclass(frozen=True)
class Job:
    """What every way runs.

    :param images: samples of each silo, where they are synthetic.
    :param batch: silos that are trained at once in batches.
    :param mnist: an `.npz` file with `images` and `labels` instead.
    :param tabular: rows of numbers instead of images.
    :param device: of the training: cpu or cuda.
    """

    silos: int
    sampled: int
    rounds: int
    images: int
    mnist: str | None = None
    tabular: bool = False
    workers: int = 0
    batch: int = 0
    device: str = "cpu"


def images(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic images, a loader that manifests name: noise round a pattern for each class."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    patterns = rng.integers(0, 128, (classes, 28, 28), dtype=np.uint8)
    noise = rng.integers(0, 128, (samples, 28, 28), dtype=np.uint8)
    return patterns[labels] + noise, labels


def rows(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic rows of 20 numbers: noise round a centre for each class."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    centres = rng.normal(size=(classes, 20))
    return (centres[labels] + rng.normal(size=(samples, 20))).astype(np.float32), labels


def documents(job: Job) -> list[dict[str, Any]]:
    """Manifest of the benchmark's job and its silos."""
    if job.mnist:
        with np.load(job.mnist) as arrays:
            keys = ("train_images", "train_labels") if "train_images" in arrays else ("images", "labels")
        config: dict[str, Any] = {"path": str(Path(job.mnist).resolve())}
        config |= dict(zip(("features", "labels"), keys, strict=True))
        source: dict[str, Any] = {"loader": "npz", "config": config}
    else:
        config = {"samples": job.silos * job.images, "classes": 10}
        source = {"loader": _synthetic(job), "config": config}
    # Fewer silos than classes would leave some class to nobody.
    parts = {"scheme": "labels", "config": {"labelsPerSilo": 2 if job.silos >= 10 else 10}}
    silos = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "SiloTemplate",
        "metadata": {"namespace": "silos", "name": "s", "labels": {"member": "yes"}},
        "spec": {"count": job.silos, "datasets": [{"name": "images", **source, "partition": parts}]},
    }
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": f"python:benchmarks.networks:{'perceptron' if job.tabular else 'lenet5'}"},
        "data": {
            "dataset": "images",
            "classes": 10,
            "inputShape": [20] if job.tabular else [1, 28, 28],
            "validationFraction": 0,
        },
        "training": {
            "rounds": job.rounds,
            "device": job.device,
            "batchSize": 10 if job.tabular else 32,
            "optimizer": {"learningRate": 0.02, "momentum": 0.9, "weightDecay": 0.0},
        },
        "silos": {"selector": {"matchLabels": {"member": "yes"}}},
        "participation": {"fraction": job.sampled / job.silos, "roundDeadline": "10m"},
        "evaluation": {"every": job.rounds, "testDataset": "test"},
        "aggregator": {"datasets": [{"name": "test", **_test(job)}]},
    }
    metadata = {"namespace": "federation", "name": "images"}
    return [
        silos,
        {"apiVersion": "fedsilo.io/v1alpha1", "kind": "FederatedJob", "metadata": metadata, "spec": spec},
    ]


def _test(job: Job) -> dict[str, Any]:
    """A small test set, scored once: what is measured is training."""
    return {"loader": _synthetic(job), "config": {"samples": 100, "classes": 10}}


def _synthetic(job: Job) -> str:
    return f"python:benchmarks.simulation:{'rows' if job.tabular else 'images'}"


def manifest_of(job: Job) -> JobManifest:
    """The job as a manifest's file would give it."""
    parsed = parse_manifest("simulation.yaml", documents_of(documents(job)))
    if parsed.federation is None or parsed.faults:
        raise SystemExit("\n".join(map(str, parsed.faults)))
    return parsed.federation


def measure(way: str, job: Job, directory: Path) -> list[float]:
    """Run the job one way in this process; the time at which each round was complete."""
    directory.mkdir(parents=True, exist_ok=True)
    workers = job.workers if way.endswith("workers") else 0
    if way.startswith("hand-written"):
        return hand_written(Clients(manifest_of(job)), directory / "model.safetensors", workers)
    return _simulation(job, directory, ExecutionPlan(workers, job.batch if way.endswith("batches") else 0))


def _simulation(job: Job, directory: Path, execution: ExecutionPlan) -> list[float]:
    from contextlib import closing

    from fedsilo.simulation.simulate import open_simulation

    times: list[float] = []
    with closing(open_simulation(manifest_of(job), Path.cwd(), directory, execution)) as simulation:
        for _ in simulation.run():
            if len(simulation.history()) > len(times):
                times.append(time.time())
        if simulation.failure is not None:
            raise simulation.failure
    return times


def _run(directory: Path, options: Sequence[str]) -> list[float]:
    """The command, in a process of its own; the time at which each round was complete."""
    file, workdir = directory / "job.yaml", directory / "run"
    command = [sys.executable, "-m", "fedsilo.cli.main", "run", "-f", str(file), "--workdir", str(workdir)]
    times: list[float] = []
    history = workdir / "aggregator" / "history.jsonl"
    command += [*options, "--json"]
    # Opacus installs a package `benchmarks` too, which the federation's processes would find before this one.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    said = directory / "errors.log"
    with (
        said.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment) as run,
    ):
        while run.poll() is None:
            lines = history.read_bytes().count(b"\n") if history.exists() else 0
            times += [time.time()] * (lines - len(times))
            time.sleep(0.01)
    if run.returncode != 0:
        last = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise SystemExit(
            f"fedsilo run {' '.join(options)} ended with exit code {run.returncode}: {''.join(last)}"
        )
    (workdir / "model.safetensors").rename(directory / "model.safetensors")
    return times


def plan_of(job: Job, file: Path) -> None:
    """Write what the tuned loop is given."""
    clients = Clients(manifest_of(job))
    if job.mnist:
        source = documents(job)[0]["spec"]["datasets"][0]["config"]
    else:
        source = {"path": str(file.with_suffix(".data.npz")), "features": "features", "labels": "labels"}
        np.savez(source["path"], features=clients.features.numpy(), labels=clients.labels.numpy())
    numbers = {name: number for number, name in enumerate(clients.names)}
    rounds = [
        [(numbers[name], clients.seed(name, number)) for name in drawn]
        for number, drawn in enumerate(clients.rounds, start=1)
    ]
    ends = np.cumsum([len(clients.parts[name]) for name in clients.names])
    optimizer = clients.training.optimizer
    plan = {
        "data": source["path"],
        "features": source["features"],
        "labels": source["labels"],
        "rounds": rounds,
        "seed": clients.initial_seed,
        "workers": job.workers,
        "batch": clients.training.batch_size,
        "lr": optimizer.learning_rate,
        "momentum": optimizer.momentum,
    }
    np.savez(
        file,
        plan=np.frombuffer(json.dumps(plan).encode(), np.uint8),
        bounds=np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1),
        places=np.concatenate([clients.parts[name].numpy() for name in clients.names]),
    )


@dataclass(frozen=True)
class TimedRun:
    """One run of one way: when it began, each round was complete, the model was there, and the process had ended."""

    began: float
    rounds: list[float]
    model: float
    ended: float
    cpu: float

    @property
    def rate(self) -> float:
        """Rounds per second once they run."""
        return (len(self.rounds) - 1) / (self.rounds[-1] - self.rounds[0])

    def row(self, way: str, first: float, difference: float) -> str:
        """A line of the table."""
        start = self.rounds[0] - self.began - 1 / self.rate
        agrees = "" if difference <= TOLERANCE else f"   differs by {difference:.1e}"
        seconds = f"{start:9.1f}{self.model - self.began:9.1f}{self.ended - self.began:9.1f}{self.cpu:9.1f}"
        return f"{way:24}{self.rate:10.2f}{self.rate / first:9.2f}{seconds}{agrees}"


def run_way(way: str, job: Job, options: Sequence[str], model: Path) -> TimedRun:
    """Run the job one way, in a process of its own.

    :param model: file that it writes.
    """
    began, cpu = time.time(), _cpu_of_children()
    if way in ("command, workers", "processes"):
        in_process = ["--in-process", "--workers", str(job.workers)] if way == "command, workers" else []
        times = _run(model.parent, in_process)
    else:
        command = [sys.executable, "-m", "benchmarks.simulation", *options, "--one", way]
        command += ["--into", str(model.parent)]
        if way.startswith("tuned"):
            command = [sys.executable, "-m", "benchmarks.tuned", str(model.parent / "plan.npz"), str(model)]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        times = json.loads(ran.stdout.splitlines()[-1])
    ended = time.time()
    return TimedRun(began, times, model.stat().st_mtime, ended, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(ways: Sequence[str], job: Job, options: Sequence[str]) -> None:
    """Run every way in a process of its own and print the table."""
    print(
        f"{'way':24}{'rounds/s':>10}{'of first':>9}{'start s':>9}{'model s':>9}{'in all s':>9}{'CPU s':>9}",
        flush=True,
    )
    first, reference = 0.0, None
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as root:
        for number, way in enumerate(ways):
            directory = Path(root) / str(number)
            directory.mkdir()
            model = directory / ("model.npz" if way.startswith("tuned") else "model.safetensors")
            if way.startswith("tuned"):
                plan_of(job, directory / "plan.npz")
            (directory / "job.yaml").write_text(yaml.safe_dump_all(documents(job)), encoding="utf-8")
            timed = run_way(way, job, options, model)
            first = first or timed.rate
            reference = reference or model
            print(timed.row(way, first, _difference(reference, model)), flush=True)


def _difference(one: Path, other: Path) -> float:
    from fedsilo.wire import open_blob

    def tree(path: Path) -> Mapping[str, np.ndarray]:
        return np.load(path) if path.suffix == ".npz" else open_blob(path).tree()

    trees = [tree(path) for path in (one, other)]
    return max(float(np.abs(trees[0][name] - trees[1][name]).max()) for name in trees[0])


def main() -> None:
    """Print the table, or one way's times as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, default=10)
    parser.add_argument("--sampled", type=int, help="silos of a round; all by default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--images", type=int, default=320, help="synthetic samples of each silo")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--mnist", help=".npz file with images and labels, instead of synthetic ones")
    data.add_argument("--tabular", action="store_true", help="rows of numbers instead of images")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=10, help="silos of one batch")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error(f"--rounds: {args.rounds}: at least 2, since the first is counted with the start")
    job = Job(
        args.silos,
        args.sampled or args.silos,
        args.rounds,
        args.images,
        args.mnist,
        args.tabular,
        args.workers,
        args.batch,
    )
    if args.one:
        print(json.dumps(measure(args.one, job, args.into)))
    else:
        compare(args.ways, job, sys.argv[1:])


if __name__ == "__main__":
    main()
