"""The one federation, task and update that all vectors are about."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsilo.wire import (
    BlobLink,
    ChainEnd,
    Contract,
    ExpectedBlock,
    SigningKey,
    Task,
    UpdateHeader,
    seal_task,
    task_digest,
)
from tests.updates import write_update

SEEDS = {
    "aggregator": "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "silo": "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "next": "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
}
KEYS = {
    name: SigningKey(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)))
    for name, seed in SEEDS.items()
}
AGGREGATOR, SILO, NEXT_KEY = KEYS["aggregator"], KEYS["silo"], KEYS["next"]
SENDER = "silo-north/north"
NOW = 1_800_000_000

BLOCKS = (
    ExpectedBlock("model", "classifier.weight", (2, 3), "float32"),
    ExpectedBlock("model", "encoder.steps", (), "int64"),
    ExpectedBlock("class_counts", "counts/0", (1,), "int64", 0),
    ExpectedBlock("class_counts", "counts/1", (1,), "int64", 1),
)
CONTRACT = Contract(BLOCKS, ("loss",))
ARRAYS: tuple[np.ndarray, ...] = (
    np.array([[0, 1, -2], [0.5, 1e-3, 3e8]], np.float32),
    np.array(12, np.int64),
    np.array([41], np.int64),
    np.array([7], np.int64),
)
CONTENTS = [array.tobytes() for array in ARRAYS]
TASK_MESSAGE = Task(
    job="1f0c3f0a-digits",
    silo=SENDER,
    task="3-north",
    round=3,
    phase="training",
    step="train",
    spec_digest=hashlib.sha256(b"spec").digest(),
    contract=bytes.fromhex(CONTRACT.digest()),
    blobs=(BlobLink("global", hashlib.sha256(b"blob").hexdigest(), 4),),
    settings={"cluster": 1, "final": False, "mu": 0.01, "rule": "mean"},
)
TASK_BYTES = seal_task(TASK_MESSAGE, KEYS["aggregator"])
HEADER = UpdateHeader(
    job=TASK_MESSAGE.job,
    task=TASK_MESSAGE.task,
    round=3,
    sender=SENDER,
    key_id=SILO.verify_key.key_id,
    contract=bytes.fromhex(CONTRACT.digest()),
    task_digest=task_digest(TASK_BYTES),
    samples=48,
    metrics={"loss": 0.75},
    blocks=(),
)
DECISION_FIELDS: dict[str, Any] = {
    "silo": SENDER,
    "proposal": hashlib.sha256(b"proposal").hexdigest(),
    "decision": "Refused",
    "objections": [
        {"reason": "PolicyRefused", "message": "Silo north: policy.maxRounds is 10, the job has 20 rounds."},
        {
            "reason": "ApprovalRefused",
            "message": "Silo north: the institution refused the job (nicht im März).",
        },
    ],
    "decidedBy": "dr.meyer@north.example",
    "decidedAt": "2027-01-15T08:00:00Z",
    "time": "2027-01-15T08:00:01Z",
}
OFFER_FIELDS: dict[str, Any] = {
    "silo": SENDER,
    "publicKey": SILO.verify_key.to_text(),
    "datasets": [{"name": "scans", "classes": 2, "inputShape": [1, 64, 64]}],
    "policy": {"minSamplesPerClass": 5, "manualApproval": True},
    "time": "2027-01-15T08:00:01Z",
}
SUCCESSION_FIELDS: dict[str, Any] = {
    "silo": SENDER,
    "previousKey": SILO.verify_key.to_text(),
    "publicKey": NEXT_KEY.verify_key.to_text(),
    "time": "2027-01-15T08:00:02Z",
}
LEAVING_FIELDS: dict[str, Any] = {
    "silo": SENDER,
    "hub": AGGREGATOR.verify_key.key_id,
    "time": "2027-01-15T08:00:03Z",
}
REQUEST: dict[str, Any] = {
    "job": HEADER.job,
    "method": "GET",
    "path": "/v1/jobs/digits/task?wait=30",
    "body": None,
}

CHAIN_END = ChainEnd(TASK_MESSAGE.job, 7, hashlib.sha256(b"the last line of a chain").digest())


def write_example(
    path: Path,
    contract: Contract,
    blocks: Iterable[tuple[ExpectedBlock, np.ndarray]],
    metrics: Mapping[str, float],
    answered: bytes = HEADER.task_digest,
) -> None:
    """The update with these blocks, as the package writes it.

    :param answered: digest of the sealed task that it answers.
    """
    write_update(
        path,
        job=HEADER.job,
        task=HEADER.task,
        round=HEADER.round,
        sender=HEADER.sender,
        contract=contract,
        task_digest=answered,
        samples=HEADER.samples,
        metrics=metrics,
        blocks=blocks,
        key=SILO,
    )
