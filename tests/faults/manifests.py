"""Small federations for trials with faults: two silos with a few vectors each, or three where the aggregator sees sums
only, and two rounds.

Silos evaluate after the second, unless their aggregator sees sums only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.local.workdir import RunDirectory

SILOS = ("north", "south")

SECURE_FEDAVG = "secure"
"""FedAvg with secure aggregation, by the name of a method."""

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedconcat": {"clusters": 1, "encoderRounds": 1, "classifierRounds": 1},
    "fedphp": {},
    SECURE_FEDAVG: {},
}
"""Method -> its configuration. FedPHP keeps private state, and models of the silos' own."""


def silos_of(method: str) -> tuple[str, ...]:
    """Names of the silos of a method's job."""
    return (*SILOS, "west") if method == SECURE_FEDAVG else SILOS


def silos_in(workdir: RunDirectory) -> tuple[str, ...]:
    """Names of the silos of a run."""
    config = json.loads((workdir.aggregator / "config.json").read_text())
    return tuple(silo["name"] for silo in config["silos"])


def write_data(directory: Path) -> None:
    """The silos' vectors, as files that the manifests name."""
    chance = np.random.default_rng(0)
    for silo in silos_of(SECURE_FEDAVG):
        labels = np.repeat(np.arange(4), 8)
        features = (chance.normal(0, 0.3, (len(labels), 6)) + np.eye(6)[labels]).astype(np.float32)
        np.savez(directory / f"{silo}.npz", images=features, labels=labels)


def federation(method: str, data: Path) -> JobManifest:
    """The job and its silos.

    :param data: directory of `write_data`.
    """
    names, secure = silos_of(method), method == SECURE_FEDAVG
    job = {
        "metadata": {"name": "tried", "namespace": "federation"},
        "spec": {
            "method": {"name": "fedavg" if secure else method, "config": METHODS[method]},
            "model": {"name": "mlp", "config": {"hidden": [5]}},
            "data": {"dataset": "vectors", "classes": 4, "inputShape": [6]},
            "training": {"rounds": 2, "device": "cpu", "localEpochs": 1},
            "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in names]},
            "participation": {"roundDeadline": "5m", "minSilos": len(names)},
            "aggregation": {"secure": True} if secure else {},
            "evaluation": {"every": 2},
            "privacy": {"minSamplesPerClass": 1},
        },
    }
    kinds = ["model", "class_counts", "class_means", "class_covariances", "averaged_gradients"]
    silos = [
        {
            "metadata": {"name": name, "namespace": f"silo-{name}"},
            "spec": {
                "datasets": [
                    {
                        "name": "vectors",
                        "loader": "npz",
                        "config": {
                            "path": str(data / f"{name}.npz"),
                            "features": "images",
                            "labels": "labels",
                        },
                    }
                ],
                "policy": {"payloadKinds": kinds, "minSamplesPerClass": 1},
            },
        }
        for name in names
    ]
    return JobManifest(
        "tried", FederatedJob.model_validate(job), tuple(Silo.model_validate(silo) for silo in silos)
    )
