"""Descriptions of networks that are larger than any memory, beside a small file of tensors: layers of 60,000 x 60,000,
encoders without number, models made of models.

By: somebody whose model a person opens.

Must: refused with one line before a layer takes memory.
"""

from __future__ import annotations

from typing import Any

from attacks.handed_over import LOAD_MODEL, MODEL, HandedOver

RUNS_ONCE = True

WIDE_NETWORK = {"name": "mlp", "config": {"hidden": [60_000] * 16}}
DATA = {"inputShape": [60_000], "classes": 4}
NETWORKS = (
    WIDE_NETWORK,
    {"name": "transformer", "config": {"width": 65_536, "layers": 128, "heads": 1}},
    {"name": "concatenated", "config": {"encoders": 10**9, "base": WIDE_NETWORK}},
    {"name": "concatenated", "config": {"encoders": 1000, "base": {"name": "resnet56", "config": {}}}},
    {"name": "concatenated", "config": {"encoders": 2, "base": {"name": "concatenated", "config": {}}}},
    {"name": "gated", "config": {"base": WIDE_NETWORK, "mixes": "logits"}},
    {"name": "gated", "config": {}},
)


def attack(target: HandedOver) -> None:
    for network in NETWORKS:
        shape = [3, 64, 64] if "resnet" in str(network) else [60_000]
        at = target.copy()
        changes = {"model": network, "data": {**DATA, "inputShape": shape}}

        def update_document(document: dict[str, Any], changes: dict[str, Any] = changes) -> None:
            document.update(changes)

        target.edit_json(at / "model.json", update_document)
        for command in ((LOAD_MODEL, MODEL), ("evaluate", "--model", MODEL, "-f", "job.yaml")):
            target.expect_refused("model", *command, at=at, codes=(2, 7))
