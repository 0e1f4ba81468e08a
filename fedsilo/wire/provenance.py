"""The seal of a provenance chain: the job's key vouches for its last line, and so for all of it."""

from __future__ import annotations

from dataclasses import dataclass

from fedsilo.wire.envelope import open_envelope, seal
from fedsilo.wire.fields import PROTOCOL, FieldReader, check_protocol
from fedsilo.wire.keys import PROVENANCE, SigningKey, VerifyKey

_KEYS = ("protocol", "job", "lines", "chain")


@dataclass(frozen=True)
class ChainEnd:
    """Where a chain ends.

    :param job: uid of the job.
    :param lines: how many it has.
    :param chain: SHA-256 of its last line, 32 bytes.
    """

    job: str
    lines: int
    chain: bytes


def seal_chain(end: ChainEnd, key: SigningKey) -> bytes:
    """Encode the end of a provenance chain, and sign it.

    :raises Problem: as `open_chain`; what is sealed can be opened.
    """
    fields: dict[str, object] = {
        "protocol": PROTOCOL,
        "job": end.job,
        "lines": end.lines,
        "chain": end.chain,
    }
    _read(fields)
    return seal(PROVENANCE, fields, key)


def open_chain(data: bytes, key: VerifyKey) -> ChainEnd:
    """Verify the end of a provenance chain, and decode it.

    :raises Problem: `signature-invalid`, `unsupported`, `malformed`, `truncated` or `too-long`.
    """
    return _read(open_envelope(PROVENANCE, data, key))


def _read(value: dict[str, object]) -> ChainEnd:
    check_protocol("provenance", value)
    fields = FieldReader("provenance", value, _KEYS)
    fields.integer("protocol", PROTOCOL, PROTOCOL)
    return ChainEnd(fields.text("job"), fields.integer("lines"), fields.binary("chain", 32))
