"""Updates and tasks that must be refused: the good one, with one thing wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsilo.wire import (
    TASK,
    UPDATE,
    SigningKey,
    TensorEntry,
    seal,
)
from fedsilo.wire.fields import pack, unpack_map
from fedsilo.wire.header import encode_header, gaps, offsets
from tests.vectors.example import BLOCKS, CONTENTS, HEADER, KEYS, SILO, TASK_BYTES


def entries(contents: list[bytes]) -> list[dict[str, Any]]:
    """The list of blocks in the header, for the contract's blocks with these contents."""
    places = offsets(len(content) for content in contents)
    return [
        {
            "name": block.name,
            "kind": block.kind,
            "dtype": block.dtype,
            "shape": list(block.shape),
            "offset": offset,
            "length": len(content),
            "digest": hashlib.sha256(content).digest(),
        }
        for block, content, offset in zip(BLOCKS, contents, places, strict=False)
    ]


def fields(contents: list[bytes]) -> dict[str, Any]:
    """Map of the header of an update with these contents."""
    blocks = entries(contents)
    end = blocks[-1]["offset"] + blocks[-1]["length"]
    return unpack_map("header", encode_header(HEADER)) | {"length": end, "blocks": blocks}


def signed_update(header: bytes, contents: list[bytes], key: SigningKey = SILO) -> bytes:
    """A well-signed update, whatever its header says; payloads lie where the format wants them."""
    data = pack(header) + b"\xc4\x40" + key.sign(UPDATE, header)
    lengths = [len(content) for content in contents]
    blocks = [
        TensorEntry("", "", "", (), offset, length, b"")
        for offset, length in zip(offsets(lengths), lengths, strict=True)
    ]
    return data + b"".join(
        gap + content for gap, content in zip(gaps(len(data), blocks), contents, strict=True)
    )


def refused_updates(good: bytes) -> Iterator[tuple[str, str, bytes, str]]:
    """Name, code, bytes and reason."""
    whole = fields(CONTENTS)

    def header(**changes: object) -> bytes:
        return signed_update(pack(whole | changes), CONTENTS)

    def block(index: int, **changes: object) -> bytes:
        blocks = [entry | changes if place == index else entry for place, entry in enumerate(whole["blocks"])]
        return header(blocks=blocks)

    def pick(*order: int) -> bytes:
        contents = [CONTENTS[index] for index in order]
        places = offsets(len(content) for content in contents)
        blocks = [whole["blocks"][i] | {"offset": at} for i, at in zip(order, places, strict=True)]
        end = places[-1] + len(contents[-1])
        return signed_update(pack(whole | {"blocks": blocks, "length": end}), contents)

    nan = [np.array([[np.nan, 1, 2], [3, 4, 5]], np.float32).tobytes(), *CONTENTS[1:]]
    yield "empty", "truncated", b"", "nothing was sent"
    yield "not-bin", "malformed", b"\x81\xa1a\x01 ", "the first object is a map, not a bin"
    yield (
        "long-head",
        "malformed",
        b"\xc6\x00\x00" + good[1:],
        "the header's length is not in its shortest form",
    )
    yield "big-header", "too-long", b"\xc6\x00\x40\x00\x01", "a header of more than 4 MiB"
    yield "truncated", "truncated", good[:-1], "the last byte is missing"
    yield "trailing", "too-long", good + b"\xc0", "a byte follows the last block, even though it is padding"
    yield (
        "flipped",
        "digest-mismatch",
        good[:-1] + bytes([good[-1] ^ 1]),
        "one bit of the last block is flipped",
    )
    yield (
        "padding",
        "malformed",
        good[:-9] + b"\x00" + good[-8:],
        "a length in a bin head differs from the header",
    )
    yield "no-signature", "malformed", pack(pack(whole)) + bytes(66), "no bin of 64 bytes after the header"
    stranger = signed_update(pack(whole), CONTENTS, KEYS["aggregator"])
    yield "wrong-key", "signature-invalid", stranger, "signed with another key"
    yield "key-id", "signature-invalid", header(keyId="0" * 16), "keyId is not that of the key that signed"
    yield "protocol", "unsupported", header(protocol=2), "another protocol version"
    yield "digest", "unsupported", header(digest="sha512"), "another digest algorithm"
    yield "algorithm", "contract-mismatch", header(digest="blake3"), "another digest than the contract's"
    yield "encoding", "unsupported", header(encoding="gzip"), "another transfer encoding"
    yield (
        "key-twice",
        "malformed",
        signed_update(b"\x8f" + pack(whole)[1:] + b"\xa5round\x03", CONTENTS),
        "a key twice",
    )
    yield (
        "key-order",
        "malformed",
        signed_update(pack(dict(sorted(whole.items()))), CONTENTS),
        "keys in another order",
    )
    yield "extra-key", "malformed", header(note="x"), "a key that the protocol does not have"
    longer = pack(whole).replace(b"\xa5round\x03", b"\xa5round\xcc\x03")
    yield "long-integer", "malformed", signed_update(longer, CONTENTS), "an integer not in its shortest form"
    yield "negative", "malformed", header(samples=-1), "a negative number of samples"
    yield "metric-int", "malformed", header(metrics={"loss": 1}), "a metric that is no float64"
    yield "metric-nan", "not-finite", header(metrics={"loss": float("nan")}), "a metric that is not a number"
    yield "length", "malformed", header(length=whole["length"] + 1), "length is not where the last block ends"
    yield "offset", "malformed", block(1, offset=128), "an offset leaves more room than the format wants"
    yield "block-length", "malformed", block(0, length=23), "length is not that of shape and dtype"
    yield "block-nan", "not-finite", signed_update(pack(fields(nan)), nan), "a tensor holds NaN"
    yield "job", "wrong-job", header(job="another"), "for another job"
    yield "task", "wrong-task", header(task="2-north"), "for another task"
    yield "round", "wrong-round", header(round=2), "for another round"
    yield "sender", "wrong-sender", header(sender="silo-south/south"), "in the name of another silo"
    yield "contract", "contract-mismatch", header(contract=bytes(32)), "under another contract"
    yield "task-digest", "task-mismatch", header(taskDigest=bytes(32)), "for other bytes of the same task"
    yield "name", "unexpected-block", block(0, name="patients"), "a block that the contract does not have"
    yield "order", "unexpected-block", pick(1, 0, 2, 3), "blocks out of the contract's order"
    yield "missing", "missing-block", pick(0, 2, 3), "a block without label is left out"
    yield "kind", "wrong-kind", block(0, kind="averaged_gradients"), "a block under another kind"
    yield "shape", "wrong-shape", block(0, shape=[3, 2]), "a block of another shape"
    yield "dtype", "wrong-dtype", block(0, dtype="int32"), "a block of another dtype"
    yield (
        "metric",
        "unexpected-metric",
        header(metrics={"age": 1.0}),
        "a metric that the contract does not have",
    )


def refused_tasks() -> Iterator[tuple[str, str, bytes, str]]:
    """Name, code, bytes and reason."""
    key = KEYS["aggregator"]
    whole = unpack_map("task", TASK_BYTES[3:-66])
    yield (
        "flipped",
        "signature-invalid",
        TASK_BYTES[:9] + b"\x02" + TASK_BYTES[10:],
        "one byte of the header differs",
    )
    yield "domain", "signature-invalid", seal(UPDATE, whole, key), "signed in the domain of updates"
    yield "key", "signature-invalid", seal(TASK, whole, SILO), "signed by a silo"
    yield "trailing", "too-long", TASK_BYTES + b"\xc0", "a byte after the signature"
    yield "truncated", "truncated", TASK_BYTES[:-1], "the last byte is missing"
    yield "protocol", "unsupported", seal(TASK, whole | {"protocol": 2}, key), "another protocol version"
    (link,) = whole["blobs"]
    for algorithm in ("sha256", "md5"):
        blobs = [link | {"algorithm": algorithm}]
        why = f"a blob whose digest is said to be {algorithm}: only blake3 is said"
        yield f"blob-{algorithm}", "unsupported", seal(TASK, whole | {"blobs": blobs}, key), why
    yield (
        "nested",
        "malformed",
        seal(TASK, whole | {"settings": {"a": [1]}}, key),
        "a setting that is no scalar",
    )
    yield (
        "unsorted",
        "malformed",
        seal(TASK, whole | {"settings": {"b": 1, "a": 1}}, key),
        "settings not sorted",
    )
