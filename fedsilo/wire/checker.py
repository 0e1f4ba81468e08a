"""Check an update while it arrives, in pieces of any size, and refuse it at the first byte that decides.

The outcome depends on the bytes alone, never on how they were cut: a block is checked when it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from fedsilo.errors import Problem
from fedsilo.files.digests import SHA256
from fedsilo.wire.contract import Contract
from fedsilo.wire.envelope import SIGNATURE_HEAD, cut_signed, read_bin_head
from fedsilo.wire.header import (
    MAX_HEADER_BYTES,
    TensorEntry,
    UpdateHeader,
    decode_header,
    gaps,
    update_digest,
)
from fedsilo.wire.keys import SIGNATURE_BYTES, UPDATE, VerifyKey
from fedsilo.wire.segments import block_labels
from fedsilo.wire.tensors import BlockContent


@dataclass(frozen=True)
class ExpectedUpdate:
    """What the receiver knows about the update it waits for.

    :param task_digest: SHA-256 of the sealed task, 32 bytes.
    """

    job: str
    task: str
    round: int
    sender: str
    contract: Contract
    task_digest: bytes


@dataclass(frozen=True)
class AcceptedUpdate:
    """The outcome of a complete check.

    :param digest: of the update, see `update_digest`.
    """

    header: UpdateHeader
    digest: str


class UpdateCheck:
    """Takes an update's bytes one piece after another; after a refusal it repeats that refusal.

    :param key: the key that the sender must have signed with.
    :ivar header: the checked header, as soon as it is in.
    :ivar digest: of the update, see `update_digest`, as soon as header and signature are in.
    """

    def __init__(self, expected: ExpectedUpdate, key: VerifyKey) -> None:
        self.header: UpdateHeader | None = None
        self._expected = expected
        self._key = key
        self.digest: str | None = None
        self._received = 0
        self._signed = bytearray()  # header and signature, until both are complete
        self._payloads = PayloadCheck(0)  # of the header, as soon as it is in
        self._refusal: tuple[str, str] | None = (
            None  # its code and detail: a kept error would keep what was fed
        )

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes.

        :raises Problem: any code that docs/wire.md lists for an update, except `truncated`.
        """
        if self._refusal is not None:
            raise Problem(*self._refusal)
        view = memoryview(data).cast("B")
        self._received += len(view)
        try:
            if self.header is None:
                view = self._feed_signed(view)
            if self.header is not None:
                self._payloads.feed(view)
        except Problem as refusal:
            self._refusal = refusal.code, refusal.detail
            raise

    def finish(self) -> AcceptedUpdate:
        """End the input, after which no more bytes come.

        :raises Problem: `truncated`, or what `feed` refused before.
        """
        if self._refusal is not None:
            raise Problem(*self._refusal)
        missing = "the header" if self.header is None else self._payloads.missing_block
        if self.header is None or self.digest is None or missing is not None:
            raise Problem(
                "truncated", f"update: ends after {self._received} bytes, in {missing}; send the rest"
            )
        return AcceptedUpdate(self.header, self.digest)

    def _feed_signed(self, view: memoryview) -> memoryview:
        """Collect header and signature, check them once complete, and return what comes after them."""
        while self.header is None:
            # The longest head of a msgpack bin has 5 bytes, and no update is as short as that.
            start = bytes(self._signed[:5])
            head = read_bin_head("update", start) if len(start) == 5 else None
            wanted = sum(head) + len(SIGNATURE_HEAD) + SIGNATURE_BYTES if head else 5
            if head and head[1] > MAX_HEADER_BYTES:
                raise Problem(
                    "too-long", f"update: header of {head[1]} bytes; {MAX_HEADER_BYTES} is the most"
                )
            if head and len(self._signed) == wanted:
                self._check_signed(head)
                break
            if len(view) == 0:
                break
            missing = wanted - len(self._signed)
            self._signed += view[:missing]
            view = view[missing:]
        return view

    def _check_signed(self, head: tuple[int, int]) -> None:
        signed = bytes(self._signed)
        data, signature = cut_signed("update", signed, head)
        self._key.verify(UPDATE, data, signature)
        header = decode_header(data)
        self._check_header(header)
        self._payloads = PayloadCheck(len(signed), header.blocks, header.algorithm)
        self.digest = update_digest(signed)
        self._signed.clear()
        self.header = header

    def _check_header(self, header: UpdateHeader) -> None:
        expected = self._expected
        contract = expected.contract.digest()
        for code, field, found, wanted in (
            ("signature-invalid", "keyId", header.key_id, self._key.key_id),
            ("wrong-job", "job", header.job, expected.job),
            ("wrong-task", "task", header.task, expected.task),
            ("wrong-round", "round", header.round, expected.round),
            ("wrong-sender", "sender", header.sender, expected.sender),
            ("contract-mismatch", "contract", header.contract.hex(), contract),
            ("contract-mismatch", "digest", header.algorithm, expected.contract.algorithm),
            ("task-mismatch", "taskDigest", header.task_digest.hex(), expected.task_digest.hex()),
        ):
            if found != wanted:
                raise Problem(code, f"update: {field} is {found}; must be {wanted}")
        expected.contract.check(header.tensors, header.metrics, header.samples)


class PayloadCheck:
    """All that comes after an update's header and signature: the gaps, which are known to the byte, and the payloads.

    :param signed: bytes of header and signature, with their msgpack heads.
    :param algorithm: the hash of the blocks' digests.
    """

    def __init__(self, signed: int, blocks: Iterable[TensorEntry] = (), algorithm: str = SHA256) -> None:
        entries = tuple(blocks)
        found = zip(entries, block_labels(entries), gaps(signed, entries), strict=True)
        self._open = deque(_BlockCheck(entry, name, gap, algorithm) for entry, name, gap in found)

    @property
    def missing_block(self) -> str | None:
        """The block that is not complete yet; None once all are."""
        return f"block {self._open[0].name}" if self._open else None

    def feed(self, view: memoryview) -> None:
        """Take the next bytes.

        :raises Problem: `malformed`, `digest-mismatch`, `not-finite` or `too-long`.
        """
        while self._open:
            view = self._open[0].feed(view)
            if not self._open[0].complete:
                return
            self._open.popleft()
        if len(view) > 0:
            raise Problem("too-long", f"update: {len(view)} bytes after its end; nothing may follow")


class _BlockCheck:
    """Check of one block: the gap before it, which is known to the byte, and its payload.

    :param name: for errors.
    """

    def __init__(self, entry: TensorEntry, name: str, gap: bytes, algorithm: str) -> None:
        self.name = name
        self.complete = False
        self._entry = entry
        self._gap = gap
        self._missing = entry.length
        self._content = BlockContent(name, entry.dtype, algorithm)

    def feed(self, view: memoryview) -> memoryview:
        """Take the bytes that belong to this block and return those that come after it."""
        gap, view = view[: len(self._gap)], view[len(self._gap) :]
        if gap != self._gap[: len(gap)]:
            raise Problem(
                "malformed",
                f"update: {bytes(gap[:80]).hex()} before block {self.name};"
                f" must be {self._gap[: min(len(gap), 80)].hex()}",
            )
        self._gap = self._gap[len(gap) :]
        payload, view = view[: self._missing], view[self._missing :]
        self._content.update(payload)
        self._missing -= len(payload)
        if not self._gap and not self._missing:
            self._judge()
        return view

    def _judge(self) -> None:
        if self._content.digest() != self._entry.digest:
            raise Problem(
                "digest-mismatch", f"block {self.name}: not the bytes of its digest; send the update again"
            )
        if (fault := self._content.fault) is not None:
            raise Problem(fault.code, fault.detail)
        self.complete = True
