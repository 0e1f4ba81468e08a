"""The header of an update, and where it says that each block lies.

    bin   header     msgpack map, canonical
    bin   signature  64 bytes, over the header
    nil*             padding
    bin32 block 0    its payload begins at `base`, a multiple of 64
    nil*             padding
    bin32 block 1    its payload begins at base + offset, a multiple of 64
    ...              nothing follows the last block

Offsets count from `base`, so they do not depend on the size of the header that holds them.

A tensor of more than 1 GiB has several blocks, its segments: whoever receives it knows after each whether it holds. How
a tensor is cut follows from its size alone, so there is one way to send it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedsilo.errors import Problem
from fedsilo.files.digests import ALGORITHMS, SHA256
from fedsilo.payload_kinds import BLOCK_KINDS
from fedsilo.wire.fields import PROTOCOL, FieldReader, check_protocol, pack, unpack_map
from fedsilo.wire.tensors import TensorSpec, refuse_twice

ALIGNMENT = 64
MAX_HEADER_BYTES = 4 << 20
SEGMENT_BYTES = 1 << 30
"""Bytes of a tensor in each block but the last: a multiple of `ALIGNMENT`, so that no number is cut through."""

ENCODING = "identity"

_BLOCK_HEAD = 5  # msgpack bin 32: c6 and four bytes of length
_NIL = b"\xc0"
_KEYS = (
    "protocol",
    "job",
    "task",
    "round",
    "sender",
    "keyId",
    "digest",
    "encoding",
    "contract",
    "taskDigest",
    "samples",
    "metrics",
    "length",
    "blocks",
)
_BLOCK_KEYS = ("name", "kind", "dtype", "shape", "offset", "length", "digest")


@dataclass(frozen=True)
class TensorEntry:
    """One block as the header lists it: a tensor, or a segment of one.

    :param shape: of the whole tensor.
    :param offset: of its payload, in bytes from `base`.
    :param length: of its payload, in bytes.
    :param digest: of its payload, 32 bytes, by the header's hash.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    digest: bytes


@dataclass(frozen=True)
class UpdateHeader:
    """Everything an update says about itself; the signature over it binds every byte of the file.

    :param sender: the silo, as "namespace/name".
    :param key_id: `VerifyKey.key_id` of the signing key.
    :param contract: SHA-256 of the contract, 32 bytes.
    :param task_digest: SHA-256 of the sealed task that this answers, 32 bytes.
    :param samples: how many training samples stand behind it.
    :param blocks: in the file's order, with the segments of a tensor one after another.
    :param algorithm: the hash of their digests, one of `fedsilo.files.digests.ALGORITHMS`.
    """

    job: str
    task: str
    round: int
    sender: str
    key_id: str
    contract: bytes
    task_digest: bytes
    samples: int
    metrics: dict[str, float]
    blocks: tuple[TensorEntry, ...]
    algorithm: str = SHA256

    @property
    def length(self) -> int:
        """Bytes from `base` to the end of the file."""
        return self.blocks[-1].offset + self.blocks[-1].length if self.blocks else 0

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        """The first block of each tensor, in the file's order."""
        first: dict[str, TensorEntry] = {}
        for block in self.blocks:
            first.setdefault(block.name, block)
        return tuple(first.values())


def encode_header(header: UpdateHeader) -> bytes:
    """The canonical bytes, which are what is signed.

    :raises Problem: as `decode_header`; what is written can be read.
    """
    blocks = [
        {
            "name": block.name,
            "kind": block.kind,
            "dtype": block.dtype,
            "shape": list(block.shape),
            "offset": block.offset,
            "length": block.length,
            "digest": block.digest,
        }
        for block in header.blocks
    ]
    data = pack(
        {
            "protocol": PROTOCOL,
            "job": header.job,
            "task": header.task,
            "round": header.round,
            "sender": header.sender,
            "keyId": header.key_id,
            "digest": header.algorithm,
            "encoding": ENCODING,
            "contract": header.contract,
            "taskDigest": header.task_digest,
            "samples": header.samples,
            "metrics": dict(sorted(header.metrics.items())),
            "length": header.length,
            "blocks": blocks,
        }
    )
    decode_header(data)
    return data


def decode_header(data: bytes) -> UpdateHeader:
    """Read a header, and check that its layout is the only one its blocks can have.

    :raises Problem: `malformed`, `unsupported`, `wrong-dtype`, `not-finite` or `too-long`.
    """
    what = "update"
    if len(data) > MAX_HEADER_BYTES:
        raise Problem("too-long", f"{what}: header of {len(data)} bytes; {MAX_HEADER_BYTES} is the most")
    value = unpack_map(what, data)
    check_protocol(what, value)
    fields = FieldReader(what, value, _KEYS)
    fields.integer("protocol", PROTOCOL, PROTOCOL)
    if fields.text("digest") not in ALGORITHMS:
        raise fields.refuse("digest", f"one of {', '.join(ALGORITHMS)}", "unsupported")
    if fields.text("encoding") != ENCODING:
        raise fields.refuse("encoding", ENCODING, "unsupported")
    header = UpdateHeader(
        job=fields.text("job"),
        task=fields.text("task"),
        round=fields.integer("round"),
        sender=fields.text("sender"),
        key_id=fields.text("keyId"),
        contract=fields.binary("contract", 32),
        task_digest=fields.binary("taskDigest", 32),
        samples=fields.integer("samples"),
        metrics=fields.scalars("metrics", (float,)),
        blocks=_read_blocks(fields.items("blocks")),
        algorithm=fields.text("digest"),
    )
    _check_layout(header.blocks)
    fields.integer("length", header.length, header.length)
    return header


def _read_blocks(items: Sequence[object]) -> tuple[TensorEntry, ...]:
    found: list[TensorEntry] = []
    names: list[str] = []
    missing = 0  # bytes of the last tensor that no block has yet
    lengths = segment_lengths(missing)  # of the blocks that bring them
    for index, item in enumerate(items):
        fields = FieldReader(f"update: blocks[{index}]", item, _BLOCK_KEYS)
        spec = TensorSpec(fields.text("name"), fields.shape("shape"), fields.text("dtype"))
        if fields.text("kind") not in BLOCK_KINDS:
            raise fields.refuse("kind", f"one of {', '.join(BLOCK_KINDS)}", "wrong-kind")
        if missing:
            _require_same(fields, spec, found[-1], missing)
        else:
            names.append(spec.name)
            missing, lengths = spec.nbytes, segment_lengths(spec.nbytes)
        length = next(lengths)
        missing -= length
        entry = TensorEntry(
            name=spec.name,
            kind=fields.text("kind"),
            dtype=spec.dtype,
            shape=spec.shape,
            offset=fields.integer("offset"),
            length=fields.integer("length", length, length),
            digest=fields.binary("digest", 32),
        )
        found.append(entry)
    if missing:
        raise Problem(
            "malformed", f"update: blocks: end {missing} bytes before {names[-1]} does; list them too"
        )
    refuse_twice("update: blocks", names)
    return tuple(found)


def _require_same(fields: FieldReader, spec: TensorSpec, before: TensorEntry, missing: int) -> None:
    """Return if a block goes on with the tensor of the block before."""
    kind = fields.text("kind")
    for key, found, wanted in (
        ("name", spec.name, before.name),
        ("kind", kind, before.kind),
        ("dtype", spec.dtype, before.dtype),
        ("shape", spec.shape, before.shape),
    ):
        if found != wanted:
            raise fields.refuse(key, f"{wanted}, of which {missing} bytes are missing")


def _check_layout(blocks: tuple[TensorEntry, ...]) -> None:
    for block, offset in zip(blocks, offsets(block.length for block in blocks), strict=True):
        if block.offset != offset:
            raise Problem(
                "malformed", f"update: block {block.name}: offset is {block.offset}; must be {offset}"
            )


def update_digest(signed: bytes) -> str:
    """The digest of an update, in hexadecimal: SHA-256 of its header and signature, as they stand at its beginning.

    The header has the digest of every payload, and what lies between payloads follows from it to the byte: two files
    with one digest that both hold are the same file.
    """
    return hashlib.sha256(signed).hexdigest()


def base(signed: int) -> int:
    """Where the first payload begins.

    :param signed: bytes of header and signature, with their msgpack heads.
    """
    return _align(signed + _BLOCK_HEAD)


def offsets(lengths: Iterable[int]) -> list[int]:
    """Where the payloads of blocks of these lengths begin, from `base`."""
    found = []
    offset = 0
    for length in lengths:
        found.append(offset)
        offset = _align(offset + length + _BLOCK_HEAD)
    return found


def gaps(signed: int, blocks: Iterable[TensorEntry]) -> list[bytes]:
    """The bytes before each payload: padding, and the head of the payload's msgpack bin.

    :param signed: bytes of header and signature, with their msgpack heads.
    """
    found = []
    start, end = base(signed), signed
    for block in blocks:
        padding = start + block.offset - _BLOCK_HEAD - end
        found.append(_NIL * padding + b"\xc6" + block.length.to_bytes(4, "big"))
        end = start + block.offset + block.length
    return found


def segment_lengths(size: int) -> Iterator[int]:
    """Bytes of the blocks of a tensor that has so many, one at a time: a header may tell of any number."""
    for start in range(0, max(size, 1), SEGMENT_BYTES):
        yield min(SEGMENT_BYTES, size - start)


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
