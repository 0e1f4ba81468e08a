"""The model that is sent, and the job that sends it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

CLASSES = 10
BYTES_OF_A_NUMBER = 4


@dataclass(frozen=True)
class SentModel:
    """A fully connected network of equal layers.

    :param width: units of each layer, and features of an input.
    """

    width: int
    layers: int

    @classmethod
    def of(cls, megabytes: float, layers: int) -> SentModel:
        """The network whose weights have about so many megabytes."""
        # The positive root of `numbers` = layers width^2 + (layers + classes) width + classes.
        half = (layers + CLASSES) / 2
        product = layers * (CLASSES - megabytes * 1e6 / BYTES_OF_A_NUMBER)
        return cls(max(1, round((math.sqrt(half * half - product) - half) / layers)), layers)

    @property
    def numbers(self) -> int:
        """Number of weights and biases of the model."""
        return self.layers * self.width * (self.width + 1) + (self.width + 1) * CLASSES

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self.numbers * BYTES_OF_A_NUMBER


def documents(model: SentModel, silos: int, rounds: int, digest: str) -> list[dict[str, Any]]:
    """Manifest of the job and its silos. The silos score the model after the last round: nothing is evaluated at the
    aggregator.

    :param digest: the hash of what is large.
    """
    api = "fedsilo.io/v1alpha1"
    members = [
        {
            "apiVersion": api,
            "kind": "Silo",
            "metadata": {"name": f"s{number}", "namespace": "silos"},
            "spec": {"datasets": [{"name": "data", "loader": "npz", "config": {"path": "data.npz"}}]},
        }
        for number in range(silos)
    ]
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [model.width] * model.layers}},
        "data": {"dataset": "data", "classes": CLASSES, "inputShape": [model.width]},
        "training": {"rounds": rounds, "localEpochs": 1, "device": "cpu"},
        "silos": {"refs": [member["metadata"] for member in members]},
        "participation": {"roundDeadline": "2h"},
        "evaluation": {"every": rounds},
        "communication": {"digest": digest},
    }
    metadata = {"name": "transport", "namespace": "federation"}
    return [*members, {"apiVersion": api, "kind": "FederatedJob", "metadata": metadata, "spec": spec}]
