"""A secure sum of four silos, of which the last drops out after it has shared: every message, and the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedsilo.secure_aggregation.aggregator_side import add_masked, unmask
from fedsilo.secure_aggregation.messages import SumContext
from fedsilo.secure_aggregation.silo_side import SiloSide
from fedsilo.transforms.secure_sum.steps import broadcast_digest
from fedsilo.wire import BlobLink, SigningKey, Task

NAMES = ("silo-a/a", "silo-b/b", "silo-c/c", "silo-d/d")
KEYS = {name: SigningKey.from_seed(hashlib.sha256(name.encode()).digest()) for name in NAMES}
CONTEXT = SumContext(
    "6f1c2c0e-7f7a-4f6e-9a36-0d5a1a2b3c4d",
    "r00002-train",
    {name: key.verify_key for name, key in KEYS.items()},
    threshold=3,
)
VECTORS = {
    name: np.array([place + 1, 1 << 40, (1 << 64) - 1 - place], np.uint64) for place, name in enumerate(NAMES)
}
NEXT_CONTEXT = replace(CONTEXT, exchange="r00003-train")
TASK = Task(
    job=CONTEXT.job,
    silo=NAMES[0],
    task="r00002-train-a",
    round=2,
    phase="train",
    step="train",
    spec_digest=bytes(32),
    contract=bytes(32),
    blobs=(BlobLink("model", "11" * 32, 4), BlobLink("secure.announced", "22" * 32, 4)),
    settings={"drawn": 0.75, "work": 2},
)
OWN_TREES = ("work",)
SENT_DIGEST = broadcast_digest(TASK, OWN_TREES)


def secret(name: str, what: str) -> bytes:
    """A secret of a silo's, which would be random."""
    return hashlib.sha256(f"{name} {what}".encode()).digest()


def begin_silo(name: str) -> SiloSide:
    """A silo with these secrets."""
    return SiloSide(
        CONTEXT, name, secret(name, "mask key"), secret(name, "share key"), secret(name, "seed"), {}
    )


def next_announcement(name: str) -> bytes:
    """A silo's announcement for the next sum, whose secrets are others."""
    mask_key, share_key, seed = (secret(name, f"next {what}") for what in ("mask key", "share key", "seed"))
    return SiloSide(NEXT_CONTEXT, name, mask_key, share_key, seed, {}).announcement(KEYS[name]).to_bytes()


def document() -> dict[str, Any]:
    """The sum as the vectors have it."""
    sides = {name: begin_silo(name) for name in NAMES}
    announced = {name: side.announcement(KEYS[name]) for name, side in sides.items()}
    sealed: dict[str, Mapping[str, bytes]] = {}
    for name, side in sides.items():
        sides[name], sealed[name] = side.shares(announced)
    handed = {name: {other: sealed[other][name] for other in NAMES if other != name} for name in NAMES}
    survivors, masked = [*NAMES[:3]], {}
    for name in survivors:
        sides[name], masked[name] = sides[name].mask_vector(
            announced, handed[name], VECTORS[name], SENT_DIGEST
        )
    _, apart = begun_to_mask(announced, handed, bytes(32))
    confirmed = {}
    for name in survivors:
        sides[name], confirmed[name] = sides[name].confirmation(handed[name], survivors, KEYS[name])
    unmaskings = {
        name: sides[name].unmasking(announced, handed[name], survivors, confirmed) for name in survivors
    }
    total = np.zeros(3, np.uint64)
    add_masked(total, masked.values())
    unmask(total, CONTEXT, announced, NAMES, survivors, unmaskings, SENT_DIGEST)
    return {
        "context": CONTEXT.content.decode(),
        "secrets": {
            name: {what: secret(name, what).hex() for what in ("mask key", "share key", "seed")}
            for name in NAMES
        },
        "keys": {name: one.to_bytes().hex() for name, one in announced.items()},
        "shares": {name: {to: one.hex() for to, one in given.items()} for name, given in sealed.items()},
        "broadcast": {
            "blobs": {link.name: link.digest for link in TASK.blobs},
            "settings": TASK.settings,
            "own": list(OWN_TREES),
            "digest": SENT_DIGEST.hex(),
        },
        "vectors": {name: decimal_texts(vector) for name, vector in VECTORS.items() if name in survivors},
        "masked": {name: decimal_texts(vector) for name, vector in masked.items()},
        "maskedForAnotherBroadcast": {"digest": bytes(32).hex(), NAMES[0]: decimal_texts(apart)},
        "survivors": {name: one.hex() for name, one in confirmed.items()},
        "nextContext": NEXT_CONTEXT.content.decode(),
        "unmask": {
            name: (one.to_bytes(NAMES) + next_announcement(name)).hex() for name, one in unmaskings.items()
        },
        "sum": decimal_texts(total),
    }


def begun_to_mask(
    announced: Mapping[str, Any], handed: Mapping[str, Mapping[str, bytes]], sent: bytes
) -> tuple[SiloSide, np.ndarray]:
    """The first silo's masked vector, if it was sent something else."""
    side, _ = begin_silo(NAMES[0]).shares(announced)
    return side.mask_vector(announced, handed[NAMES[0]], VECTORS[NAMES[0]], sent)


def decimal_texts(vector: np.ndarray) -> list[str]:
    """Numbers in decimal, as texts: JSON's readers have 53 bits."""
    return [str(value) for value in vector.tolist()]
