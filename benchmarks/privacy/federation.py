"""The federation that is attacked: four silos with a few images each, of which the first is the victim.

What the victim has is drawn anew for every run, half of some candidates, so that for each candidate there are runs
with it and runs without it (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).
The other silos' images, those that the attacker has for comparison, and the test set are the same in all runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.tables.datasets import load as load_table_dataset
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.data.loaders import shipped_digits
from fedsilo.methods.state import Tree
from fedsilo.simulation.backend import Backend, Outcome
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.silos import SimulatedTask, SimulatedUpdate
from fedsilo.simulation.simulate import open_simulation

SILOS = 4
VICTIM = "silos/s0"
DELTA = 1e-3

KINDS = ("model", "class_counts", "class_means", "class_covariances", "averaged_gradients")
"""What the silos permit."""

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28)}
"""Dataset -> shape of an image."""

Images = tuple[np.ndarray, np.ndarray]
"""Images (n, channels, height, width) of numbers from 0 to 1, and classes (n,)."""


@dataclass(frozen=True)
class AttackedJob:
    """A job whose updates are looked at.

    :param changes: fields of the job's spec, laid over those below, one level deep.
    :param candidates: images of which the victim has a half.
    :param epsilon: of example-level differential privacy at `DELTA`; None without any.
    """

    dataset: str
    method: str
    changes: Mapping[str, Any]
    candidates: int = 400
    epsilon: float | None = None

    def manifest(self, run: int, folder: Path) -> JobManifest:
        """The job of one run, whose number decides what the victim has; the attacker knows all else."""
        spec: dict[str, Any] = {
            "method": {"name": self.method},
            "model": {"name": "mlp", "config": {"hidden": [64]}},
            "data": {
                "dataset": "images",
                "classes": 10,
                "inputShape": list(SHAPES[self.dataset]),
                "validationFraction": 0,
            },
            "training": {"batchSize": 20, "seed": 1, "device": "cpu"},
            "silos": {"refs": [{"namespace": "silos", "name": f"s{index}"} for index in range(SILOS)]},
            "participation": {"roundDeadline": "10m"},
            "evaluation": {"every": 1000, "testDataset": "test"},
            "aggregator": {"datasets": [self._dataset("test", run, folder)]},
        }
        for name, value in self.changes.items():
            spec[name] = {**spec.get(name, {}), **value} if isinstance(value, Mapping) else value
        if self.epsilon is not None:
            private = {"unit": "example", "epsilon": self.epsilon, "delta": DELTA}
            spec["privacy"] = {"differentialPrivacy": private}
        job = {"metadata": {"namespace": "federation", "name": "attacked"}, "spec": spec}
        silos = tuple(self._silo(index, run, folder) for index in range(SILOS))
        return JobManifest("privacy", FederatedJob.model_validate(job), silos)

    def _silo(self, index: int, run: int, folder: Path) -> Silo:
        part = self._dataset("images", run, folder)
        part["config"] = part["config"] | {"part": f"s{index}"}
        return Silo.model_validate(
            {
                "metadata": {"namespace": "silos", "name": f"s{index}"},
                "spec": {"datasets": [part], "policy": {"payloadKinds": list(KINDS)}},
            }
        )

    def _dataset(self, name: str, run: int, folder: Path) -> dict[str, Any]:
        config = {
            "dataset": self.dataset,
            "folder": str(folder),
            "part": name,
            "run": run,
            "candidates": self.candidates,
        }
        return {"name": name, "loader": "python:benchmarks.privacy.federation:load", "config": config}


def load(dataset: str, folder: str, part: str, run: int, candidates: int) -> Images:
    """A part of a dataset: `candidates`, of which `s0` is the victim's half, `s1` to `s3`, `auxiliary` or `test`."""
    images, labels = _all_images(dataset, folder)
    half = candidates // 2
    if part == "candidates":
        return images[:candidates], labels[:candidates]
    if part == "s0":
        chosen = members(run, candidates)
        return images[:candidates][chosen], labels[:candidates][chosen]
    parts = ("s1", "s2", "s3", "auxiliary")
    if part in parts:
        begin = candidates + half * parts.index(part)
        return images[begin : begin + half], labels[begin : begin + half]
    begin = candidates + half * len(parts)
    return images[begin : begin + 2000], labels[begin : begin + 2000]


def members(run: int, candidates: int) -> np.ndarray:
    """(candidates,) whether the victim has each of them in a run."""
    chosen = np.zeros(candidates, bool)
    chosen[np.random.default_rng((11, run)).permutation(candidates)[: candidates // 2]] = True
    return chosen


@lru_cache(maxsize=2)
def _all_images(dataset: str, folder: str) -> Images:
    """All images in an order of their own."""
    if dataset == "digits":
        table, labels = shipped_digits()
        images = (table / 16).astype(np.float32)
    else:
        raw, labels = load_table_dataset(dataset, folder, "train")
        images = (raw / 255).astype(np.float32)
    order = np.random.default_rng(12).permutation(len(labels))[:4000]
    return images[order].reshape(-1, *SHAPES[dataset]), labels[order].astype(np.int64)


@dataclass(frozen=True)
class ExchangeView:
    """One exchange as the aggregator sees it.

    :param sent: trees that the victim's task came with.
    :param updates: silo -> payload kind -> tensors.
    :param samples: silo -> examples, as it says.
    """

    sent: Mapping[str, Mapping[str, np.ndarray]]
    updates: Mapping[str, Mapping[str, Tree]]
    samples: Mapping[str, int]

    def mean(self, kind: str) -> Tree:
        """Tensors of a kind, averaged by samples: all that is known behind a secure sum."""
        total = sum(self.samples.values())
        names = {name for blocks in self.updates.values() for name in blocks[kind]}
        return {
            name: np.sum(
                [
                    blocks[kind][name] * (self.samples[silo] / total)
                    for silo, blocks in self.updates.items()
                    if name in blocks[kind]
                ],
                axis=0,
            )
            for name in sorted(names)
        }


class Observer:
    """A simulation's backend that keeps the last exchange of each step, as an aggregator could."""

    def __init__(self, backend: Backend) -> None:
        self.last: dict[str, ExchangeView] = {}
        self._backend = backend

    @classmethod
    def of(cls, simulation: Simulation) -> Observer:
        """Look at what a simulation exchanges that has not begun."""
        simulation.backend = observer = cls(simulation.backend)
        return observer

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task."""
        found: dict[str, SimulatedUpdate] = {}
        for silo, outcome in self._backend.run(tasks):
            if isinstance(outcome, SimulatedUpdate):
                found[silo] = outcome
            yield silo, outcome
        sent = next((task.task.trees for task in tasks if task.silo == VICTIM), {})
        updates = {silo: update.blocks for silo, update in found.items()}
        samples = {silo: update.samples for silo, update in found.items()}
        self.last[tasks[0].task.step] = ExchangeView(sent, updates, samples)

    def close(self) -> None:
        """Release the backend that computes."""
        self._backend.close()


def observe(attacked: AttackedJob, run: int, folder: Path) -> tuple[float, Mapping[str, ExchangeView]]:
    """Run a job and return its model's accuracy on the test set, and the last exchange of each step."""
    with (
        TemporaryDirectory(prefix="fedsilo-") as directory,
        closing(open_simulation(attacked.manifest(run, folder), folder, Path(directory))) as simulation,
    ):
        observer = Observer.of(simulation)
        for _ in simulation.run():
            pass
        if simulation.failure is not None:
            raise simulation.failure
        return float(simulation.history()[-1]["metrics"]["accuracy"]), observer.last
