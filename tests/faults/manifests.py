"""Small federations: two silos with a few vectors each, two rounds, and an evaluation by the silos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo

SILOS = ("north", "south")

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedconcat": {"clusters": 1, "encoderRounds": 1, "classifierRounds": 1},
    "fedphp": {},
}
"""Method -> its configuration. FedPHP keeps private state, and models of the silos' own."""


def write_data(directory: Path) -> None:
    """The silos' vectors, as files that the manifests name."""
    chance = np.random.default_rng(0)
    for silo in SILOS:
        labels = np.repeat(np.arange(4), 8)
        features = (chance.normal(0, 0.3, (len(labels), 6)) + np.eye(6)[labels]).astype(np.float32)
        np.savez(directory / f"{silo}.npz", images=features, labels=labels)


def federation(method: str, data: Path) -> JobManifest:
    """The job and its silos.

    :param data: directory of `write_data`.
    """
    job = {
        "metadata": {"name": "tried", "namespace": "federation"},
        "spec": {
            "method": {"name": method, "config": METHODS[method]},
            "model": {"name": "mlp", "config": {"hidden": [5]}},
            "data": {"dataset": "vectors", "classes": 4, "inputShape": [6]},
            "training": {"rounds": 2, "device": "cpu", "localEpochs": 1},
            "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in SILOS]},
            "participation": {"roundDeadline": "5m", "minSilos": len(SILOS)},
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
        for name in SILOS
    ]
    return JobManifest(
        "tried", FederatedJob.model_validate(job), tuple(Silo.model_validate(silo) for silo in silos)
    )
