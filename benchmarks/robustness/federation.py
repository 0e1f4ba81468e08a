"""The federation that is attacked: ten silos with digits, of which two are hostile.

- `sign-flip`: they send w - 5 (w_k - w), w the model that they were sent, so that the mean goes back.
- `scaled`: they send w + 10 (w_k - w).
- `label-flip`: they train on labels 9 - y.
- `backdoor`: half of their images have a bright corner and class 0, and their change is multiplied by 5, the number of
  silos over that of the hostile ones, so that the mean becomes their model (Bagdasaryan et al., "How To Backdoor
  Federated Learning", AISTATS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.data.loaders import shipped_digits
from fedsilo.learning.saved import open_model
from fedsilo.simulation.backend import Backend, Outcome
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.silos import SimulatedTask, SimulatedUpdate
from fedsilo.simulation.simulate import open_simulation

SILOS, HOSTILE_SILOS = 10, 2
TRAINING = 1437
"""Images of the 1,797 that silos have; the others are the test set."""

FACTORS = {"sign-flip": -SILOS / HOSTILE_SILOS, "scaled": 10.0, "backdoor": SILOS / HOSTILE_SILOS}
"""Attack -> what a hostile silo multiplies its change of the model by."""

ATTACKS = ("none", "sign-flip", "scaled", "label-flip", "backdoor")

RULES: dict[str, dict[str, Any] | None] = {
    "mean": None,
    "norm-clipping": {"name": "norm-clipping", "norm": 1.0},
    "median": {"name": "median"},
    "trimmed-mean": {"name": "trimmed-mean", "byzantine": HOSTILE_SILOS},
    "krum": {"name": "krum", "byzantine": HOSTILE_SILOS},
    "multi-krum": {"name": "multi-krum", "byzantine": HOSTILE_SILOS},
    "geometric-median": {"name": "geometric-median"},
}

Images = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Cell:
    """What one run is of.

    :param beta: of the Dirichlet distribution that each class is divided by.
    """

    attack: str
    rule: str
    beta: float
    seed: int


@dataclass(frozen=True)
class RunFinding:
    """What came of a run.

    :param backdoor: share of the test images of other classes that a bright corner makes a 0.
    :param kept: mean share of the hostile silos' and of the others' models that counted; None under the mean.
    """

    accuracy: float
    backdoor: float
    kept_hostile: float | None
    kept_others: float | None


def load(part: str, attack: str, beta: float, seed: int) -> Images:
    """The images of a silo, `0` to `9`, of which the first two are hostile, or of the `test` set."""
    table, labels = shipped_digits()
    images = (table / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    if part == "test":
        return images[TRAINING:], labels[TRAINING:]
    silo = int(part)
    own = _silo_places(labels[:TRAINING], beta, seed)[silo]
    images, labels = images[own], labels[own]
    if silo >= HOSTILE_SILOS or attack not in ("label-flip", "backdoor"):
        return images, labels
    if attack == "label-flip":
        return images, 9 - labels
    triggered = np.arange(len(labels)) % 2 == 0
    return np.where(triggered[:, None, None, None], with_trigger(images), images), np.where(
        triggered, 0, labels
    )


def with_trigger(images: np.ndarray) -> np.ndarray:
    """The images with a bright corner of 2 x 2 pixels."""
    found = images.copy()
    found[..., -2:, -2:] = 1
    return found


def _silo_places(labels: np.ndarray, beta: float, seed: int) -> list[np.ndarray]:
    """Places of each silo's images."""
    rng = np.random.default_rng((13, seed))
    parts: list[list[int]] = [[] for _ in range(SILOS)]
    for label in range(10):
        places = rng.permutation(np.flatnonzero(labels == label))
        bounds = (np.cumsum(rng.dirichlet([beta] * SILOS))[:-1] * len(places)).astype(int)
        for own, part in zip(parts, np.split(places, bounds), strict=True):
            own.extend(part.tolist())
    return [np.sort(np.array(own, np.int64)) for own in parts]


def manifest(cell: Cell, rounds: int) -> JobManifest:
    """Manifest of the cell's job and its silos."""
    spec: dict[str, Any] = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [64]}},
        "data": {"dataset": "images", "classes": 10, "inputShape": [1, 8, 8], "validationFraction": 0},
        "training": {
            "rounds": rounds,
            "localEpochs": 2,
            "batchSize": 16,
            "seed": cell.seed,
            "device": "cpu",
            "optimizer": {"learningRate": 0.1, "momentum": 0, "weightDecay": 0},
        },
        "aggregation": {"weights": "uniform", "rule": RULES[cell.rule]},
        "silos": {"refs": [{"namespace": "silos", "name": f"s{place}"} for place in range(SILOS)]},
        "evaluation": {"every": rounds, "testDataset": "test"},
        "aggregator": {"datasets": [_dataset("test", "test", cell)]},
    }
    silos = tuple(
        Silo.model_validate(
            {
                "metadata": {"namespace": "silos", "name": f"s{place}"},
                "spec": {"datasets": [_dataset("images", str(place), cell)]},
            }
        )
        for place in range(SILOS)
    )
    job = {"metadata": {"namespace": "federation", "name": "attacked"}, "spec": spec}
    return JobManifest("robustness", FederatedJob.model_validate(job), silos)


def _dataset(name: str, part: str, cell: Cell) -> dict[str, Any]:
    config = {"part": part, "attack": cell.attack, "beta": cell.beta, "seed": cell.seed}
    return {"name": name, "loader": "python:benchmarks.robustness.federation:load", "config": config}


class HostileBackend:
    """A simulation's backend in which the first silos multiply their change of the model."""

    def __init__(self, backend: Backend, factor: float) -> None:
        self._backend, self._factor = backend, factor

    @classmethod
    def of(cls, simulation: Simulation, attack: str) -> None:
        """Attack a simulation that has not begun."""
        if attack in FACTORS:
            simulation.backend = cls(simulation.backend, FACTORS[attack])

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task."""
        sent = {task.silo: task.task.trees["model"] for task in tasks}
        hostile = {f"silos/s{place}" for place in range(HOSTILE_SILOS)}
        for silo, found in self._backend.run(tasks):
            if isinstance(found, SimulatedUpdate) and silo in hostile:
                found = replace(
                    found, blocks={"model": self._scaled_change(sent[silo], found.blocks["model"])}
                )
            yield silo, found

    def _scaled_change(
        self, sent: Mapping[str, np.ndarray], model: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {
            name: (sent[name] + self._factor * (array - sent[name])).astype(array.dtype)
            for name, array in model.items()
        }

    def close(self) -> None:
        """Release the backend that computes."""
        self._backend.close()


def run(cell: Cell, rounds: int) -> RunFinding:
    """Run a cell's job."""
    with (
        TemporaryDirectory(prefix="fedsilo-") as directory,
        closing(open_simulation(manifest(cell, rounds), Path.cwd(), Path(directory))) as simulation,
    ):
        HostileBackend.of(simulation, cell.attack)
        for _ in simulation.run():
            pass
        if simulation.failure is not None:
            raise simulation.failure
        model = open_model(Path(directory) / "model.safetensors")
        history = simulation.history()
    images, labels = load("test", cell.attack, cell.beta, cell.seed)
    others = labels != 0
    with torch.inference_mode():
        answers = model(torch.from_numpy(with_trigger(images[others]))).argmax(dim=1)
    kept = [line["kept"] for line in history if "kept" in line]
    of = [
        [part for line in kept for silo, part in line.items() if _is_hostile(silo) is hostile]
        for hostile in (True, False)
    ]
    means = [float(np.mean(parts)) if parts else None for parts in of]
    return RunFinding(
        float(history[-1]["metrics"]["accuracy"]), float((answers == 0).double().mean()), means[0], means[1]
    )


def _is_hostile(silo: str) -> bool:
    return int(silo.removeprefix("silos/s")) < HOSTILE_SILOS
