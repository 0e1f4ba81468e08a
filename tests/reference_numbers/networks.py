"""Network, data and settings under which the released FedAvg codes gave the reference numbers."""

from __future__ import annotations

import numpy as np
from torch import nn

from fedsilo.learning.models import Model, load_tree
from fedsilo.learning.training import Examples, LocalTraining
from tests.reference_numbers import Numbers


def fixture_tree(npz: Numbers, prefix: str) -> dict[str, np.ndarray]:
    """The tensors under a prefix such as `init/` or `round3/`, named as in the network's state."""
    return {
        key.removeprefix(prefix): value
        for key, value in npz.items()
        if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
    }


PART_PREFIXES = {"base.": "encoder.", "head.": "classifier.", "model.": ""}
"""What programs call the parts of the network, and what they are here."""


def network_tree(npz: Numbers, prefix: str) -> dict[str, np.ndarray]:
    """The network's tensors under a prefix, of a program with names of its own; its private parts are left out."""
    found = {}
    for name, value in fixture_tree(npz, prefix).items():
        part = next((part for part in PART_PREFIXES if name.startswith(part)), "")
        if not name.startswith("private_"):
            found[PART_PREFIXES.get(part, "") + name.removeprefix(part)] = value
    return found


def harness_model(npz: Numbers) -> Model:
    """The network with its initial weights: encoder Linear(6, 5) and ReLU, classifier Linear(5, 4)."""
    tree = network_tree(npz, "init/")
    hidden, features = tree["encoder.0.weight"].shape
    classes = len(tree["classifier.weight"])
    model = Model(
        nn.Sequential(nn.Linear(features, hidden), nn.ReLU()),
        nn.Linear(hidden, classes, bias="classifier.bias" in tree),
    )
    load_tree(model, tree)
    return model


def client_examples(npz: Numbers, k: int) -> Examples:
    """Training examples of client k on the CPU."""
    return Examples.from_arrays(npz[f"x{k}"], npz[f"y{k}"], "cpu")


def fedavg_settings(name: str, npz: Numbers, round: int) -> LocalTraining:
    """Local training of a FedAvg fixture in a round (from 1), its batches in the given order.

    :raises KeyError: a name that is not one of the three FedAvg fixtures.
    """
    settings = {
        # NIID-Bench: mini-batches, constant rate.
        "niid_fedavg": lambda: LocalTraining(
            lr=float(npz["hp/lr"]),
            epochs=int(npz["hp/epochs"]),
            batch_size=int(npz["hp/batch_size"]),
            momentum=float(npz["hp/rho"]),
            weight_decay=float(npz["hp/reg"]),
            shuffle=False,
        ),
        # MAP: one full batch an epoch, at least five steps, warm-up over five rounds.
        "map_fedavg": lambda: LocalTraining(
            lr=float(npz["arg/lr"]) * min(round / 5, 1.0),
            epochs=int(npz["arg/local_epochs"]),
            batch_size=int(npz["arg/batch_size"]),
            momentum=float(npz["arg/momentum"]),
            weight_decay=float(npz["arg/weight_decay"]),
            gradient_clip=float(npz["arg/max_grad_norm"]),
            min_steps=5,
            shuffle=False,
        ),
        # FedDyn's repository: full batches, plain SGD, rate decaying from the first round on.
        "feddynrepo_fedavg_partial": lambda: LocalTraining(
            lr=float(npz["lr"]) * float(npz["lr_decay"]) ** (round - 1),
            epochs=int(npz["hp/epoch"]),
            batch_size=int(npz["sizes"].max()),
            weight_decay=float(npz["weight_decay"]),
            gradient_clip=float(npz["clip"]),
            shuffle=False,
        ),
    }
    return settings[name]()
