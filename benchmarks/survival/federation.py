"""The federation of FLamby's Fed-TCGA-BRCA, with the settings of its published runs.

Ogier du Terrail et al., "FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic Healthcare
Settings", NeurIPS 2022. The rates are those of its configuration file for this dataset; rounds follow from its number
of steps: 30 passes over 866 / 6 patients by batches of 8, in rounds of 100 steps, which are 5 rounds.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedsilo import simulate
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo

REGIONS = ("europe", "northeast", "south", "west", "midwest", "canada")
COVARIATES = 39
ROUNDS, STEPS, BATCH_ROWS = 5, 100, 8


@dataclass(frozen=True)
class Strategy:
    """One of FLamby's strategies as a method of ours.

    :param published: its name in FLamby's results.
    :param rate: of the silos' SGD.
    """

    published: str
    method: str
    rate: float
    config: Mapping[str, Any]


def _adaptive_strategy(published: str, optimizer: str, server_rate: float) -> Strategy:
    config = {
        "optimizer": optimizer,
        "variant": "released",
        "serverLearningRate": server_rate,
        "beta1": 0.9,
        "beta2": 0.999,
        "tau": 1e-8,
    }
    return Strategy(published, "fedopt", 0.01, config)


STRATEGIES = {
    "fedavg": Strategy("FedAvg100", "fedavg", 0.1, {}),
    "fedprox": Strategy("FedProx100", "fedprox", 0.1, {"mu": 0.1}),
    "fedadam": _adaptive_strategy("FedAdam100", "adam", 0.1),
    "fedyogi": _adaptive_strategy("FedYogi100", "yogi", 0.1),
    "fedadagrad": _adaptive_strategy("FedAdagrad100", "adagrad", 1.0),
    "scaffold": Strategy("Scaffold100", "scaffold", 0.01, {"serverLearningRate": 1.0}),
}


def patients(path: str, fold: str, region: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Covariates (n, 39) and targets (event, days) (n, 2) of one region, or of all."""
    with Path(path).open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if row["fold"] == fold and region in (None, row["region"])
        ]
    table = np.array(
        [[float(value) for name, value in row.items() if name not in ("region", "fold")] for row in rows],
        np.float32,
    )
    return table[:, :COVARIATES], table[:, COVARIATES:]


def concordance_of(strategy: Strategy, seed: int, path: Path) -> float:
    """Index of concordance of all test rows after a strategy's last round."""
    with TemporaryDirectory() as folder:
        return float(simulate(manifest(strategy, seed, path), folder, display=False).metrics["Concordance"])


def manifest(strategy: Strategy, seed: int, path: Path) -> JobManifest:
    """Manifest of one run."""
    spec: dict[str, Any] = {
        "method": {"name": strategy.method, "config": dict(strategy.config)},
        "model": {"name": "python:benchmarks.survival.cox:linear_hazard"},
        "task": {"name": "python:benchmarks.survival.cox:CoxTask"},
        "data": {"dataset": "patients", "inputShape": [COVARIATES], "validationFraction": 0},
        "training": {
            "rounds": ROUNDS,
            "localSteps": STEPS,
            "batchSize": BATCH_ROWS,
            "seed": seed,
            "device": "cpu",
            "optimizer": {"learningRate": strategy.rate, "momentum": 0, "weightDecay": 0},
        },
        "silos": {"refs": [{"namespace": "silos", "name": region} for region in REGIONS]},
        "evaluation": {
            "every": ROUNDS,
            "testDataset": "test",
            "metrics": ["python:benchmarks.survival.cox:Concordance"],
        },
        "aggregator": {"datasets": [_dataset("test", path, "test")]},
    }
    silos = tuple(
        Silo.model_validate(
            {
                "metadata": {"namespace": "silos", "name": region},
                "spec": {"datasets": [_dataset("patients", path, "train", region)]},
            }
        )
        for region in REGIONS
    )
    job = {"metadata": {"namespace": "federation", "name": "survival"}, "spec": spec}
    return JobManifest("survival", FederatedJob.model_validate(job), silos)


def _dataset(name: str, path: Path, fold: str, region: str | None = None) -> dict[str, Any]:
    config = {"path": str(path), "fold": fold, "region": region}
    return {"name": name, "loader": "python:benchmarks.survival.federation:patients", "config": config}
