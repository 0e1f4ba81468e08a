"""A task is what the aggregator asks of one silo in one round, signed by the job's key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from fedsilo.errors import Problem
from fedsilo.files.digests import (
    ALGORITHMS,
    BLAKE3,
    SHA256,
    algorithm_of,
    digest_bytes,
    digest_text,
    short_digest,
)
from fedsilo.wire.envelope import open_envelope, seal
from fedsilo.wire.fields import PROTOCOL, FieldReader, check_protocol
from fedsilo.wire.keys import TASK, SigningKey, VerifyKey
from fedsilo.wire.tensors import refuse_twice

FINISH = "finish"

_KEYS = (
    "protocol",
    "job",
    "silo",
    "task",
    "round",
    "phase",
    "step",
    "specDigest",
    "contract",
    "blobs",
    "settings",
)
_BLOB_KEYS = ("name", "digest", "length")
_ALGORITHM = "algorithm"  # a key of a blob whose digest is no SHA-256

Scalar = bool | int | float | str


@dataclass(frozen=True)
class BlobLink:
    """A blob to fetch, under the name by which the method knows it.

    :param digest: of the blob, as a text, which says by which hash (`fedsilo.files.digests`).
    :param length: in bytes.
    """

    name: str
    digest: str
    length: int


@dataclass(frozen=True)
class Task:
    """What a silo is to do.

    :param silo: "namespace/name".
    :param step: what to do within the phase; `FINISH` marks the last task of a job, which wants no update.
    :param spec_digest: SHA-256 of the frozen job spec, 32 bytes.
    :param contract: SHA-256 of the contract of the update, 32 bytes.
    :param settings: flat scalars that the method's silo half reads.
    """

    job: str
    silo: str
    task: str
    round: int
    phase: str
    step: str
    spec_digest: bytes
    contract: bytes
    blobs: tuple[BlobLink, ...] = ()
    settings: dict[str, Scalar] = field(default_factory=dict)


def seal_task(task: Task, key: SigningKey) -> bytes:
    """Encode a task, and sign it with the job's key.

    :raises Problem: as `open_task`; what is sealed can be opened.
    """
    fields: dict[str, object] = {
        "protocol": PROTOCOL,
        "job": task.job,
        "silo": task.silo,
        "task": task.task,
        "round": task.round,
        "phase": task.phase,
        "step": task.step,
        "specDigest": task.spec_digest,
        "contract": task.contract,
        "blobs": [_link_fields(link) for link in task.blobs],
        "settings": dict(sorted(task.settings.items())),
    }
    _read(fields)
    return seal(TASK, fields, key)


def open_task(data: bytes, key: VerifyKey) -> Task:
    """Verify a sealed task, and decode it.

    :raises Problem: `signature-invalid`, `unsupported`, `malformed`, `not-finite`, `truncated` or `too-long`.
    """
    return _read(open_envelope(TASK, data, key))


def require_algorithm(task: Task, algorithm: str, given: str | None) -> None:
    """Return if the digests of a task's blobs are of the job's kind.

    :param algorithm: the hash that the job asks for.
    :param given: the one digest that the job itself states, of its initial weights, if any.
    :raises Problem: `task-mismatch`.
    """
    for link in task.blobs:
        if link.digest != given and (found := algorithm_of(link.digest)) != algorithm:
            raise Problem(
                "task-mismatch",
                f"task {task.task}: blob {link.name} has {ALGORITHMS[found]} {short_digest(link.digest)}; "
                f"the job asks for {ALGORITHMS[algorithm]}",
            )


def task_digest(data: bytes) -> bytes:
    """SHA-256 of the sealed bytes, 32 bytes: the name by which an update says which task it answers."""
    return hashlib.sha256(data).digest()


def _read(value: dict[str, object]) -> Task:
    check_protocol("task", value)
    fields = FieldReader("task", value, _KEYS)
    fields.integer("protocol", PROTOCOL, PROTOCOL)
    task = Task(
        job=fields.text("job"),
        silo=fields.text("silo"),
        task=fields.text("task"),
        round=fields.integer("round"),
        phase=fields.text("phase"),
        step=fields.text("step"),
        spec_digest=fields.binary("specDigest", 32),
        contract=fields.binary("contract", 32),
        blobs=tuple(_read_link(index, link) for index, link in enumerate(fields.items("blobs"))),
        settings=fields.scalars("settings", (bool, int, float, str)),
    )
    refuse_twice("task: blobs", (link.name for link in task.blobs))
    return task


def _link_fields(link: BlobLink) -> dict[str, object]:
    algorithm = algorithm_of(link.digest)
    more = {} if algorithm == SHA256 else {_ALGORITHM: algorithm}
    return {"name": link.name, "digest": digest_bytes(link.digest), "length": link.length} | more


def _read_link(index: int, value: object) -> BlobLink:
    named = isinstance(value, dict) and _ALGORITHM in value
    fields = FieldReader(f"task: blobs[{index}]", value, (*_BLOB_KEYS, _ALGORITHM) if named else _BLOB_KEYS)
    if named and fields.text(_ALGORITHM) != BLAKE3:
        raise fields.refuse(_ALGORITHM, f"{BLAKE3}, or left out", "unsupported")
    digest = digest_text(BLAKE3 if named else SHA256, fields.binary("digest", 32))
    return BlobLink(fields.text("name"), digest, fields.integer("length"))
