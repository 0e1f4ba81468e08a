"""An update whose tensors lie in segments of 64 bytes, where the wire's have a GiB; and others that must be refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.wire import UPDATE, Contract, ExpectedBlock, ExpectedUpdate
from fedsilo.wire.envelope import read_bin_head
from fedsilo.wire.fields import pack, unpack_map
from fedsilo.wire.header import TensorEntry, base, decode_header, gaps, offsets
from fedsilo.wire.update import signed_part
from tests.segments import segments_of
from tests.vectors.example import HEADER, SILO, write_example

SEGMENT_BYTES = 64
BLOCKS = (
    ExpectedBlock("model", "embedding", (5, 7), "float32"),
    ExpectedBlock("model", "steps", (), "int64"),
    ExpectedBlock("model", "half", (8, 8), "float16"),
    ExpectedBlock("model", "one", (16,), "float32"),
)
"""Blocks of three segments, one, two and one: the last two end where a segment does."""

CONTRACT = Contract(BLOCKS)
EXPECTED_UPDATE = ExpectedUpdate(
    HEADER.job, HEADER.task, HEADER.round, HEADER.sender, CONTRACT, HEADER.task_digest
)
ARRAYS: tuple[np.ndarray, ...] = (
    np.arange(35, dtype=np.float32).reshape(5, 7) / 8 - 2,
    np.array(12, np.int64),
    np.arange(64, dtype=np.float16).reshape(8, 8),
    np.arange(16, dtype=np.float32),
)


def write(path: Path) -> None:
    """The update, as the package writes it."""
    with segments_of(SEGMENT_BYTES):
        write_example(path, CONTRACT, list(zip(BLOCKS, ARRAYS, strict=True)), {})


class SplitUpdate:
    """The update taken apart, to be put together in other ways, all of them rightly signed."""

    def __init__(self, path: Path) -> None:
        self.data, self.signed = path.read_bytes(), len(signed_part(path))
        head = read_bin_head("update", self.data)
        assert head is not None
        header = self.data[head[0] : sum(head)]
        with segments_of(SEGMENT_BYTES):
            self.blocks = decode_header(header).blocks
        self.fields = unpack_map("header", header)
        start = base(self.signed)
        self.contents = [self.data[start + block.offset :][: block.length] for block in self.blocks]

    def of(self, *order: int) -> bytes:
        """These blocks in this order, laid out as the format wants it."""
        return self.laid_out([(self.fields["blocks"][index], self.contents[index]) for index in order])

    def cut(self, *sizes: int) -> bytes:
        """The first tensor in segments of these sizes, and all else as it is."""
        content, blocks = b"".join(self.contents[:3]), []
        for size in sizes:
            part, content = content[:size], content[size:]
            blocks.append((self.fields["blocks"][0] | {"digest": hashlib.sha256(part).digest()}, part))
        return self.laid_out([*blocks, *zip(self.fields["blocks"][3:], self.contents[3:], strict=True)])

    def change_block(self, index: int, **changes: object) -> bytes:
        """One block's entry in the header with other fields."""
        entries = [entry | changes if i == index else entry for i, entry in enumerate(self.fields["blocks"])]
        return self.sealed_update(entries, self.contents)

    def laid_out(self, blocks: Sequence[tuple[dict[str, Any], bytes]]) -> bytes:
        """Entries with their contents, one after another."""
        places = offsets(len(content) for _, content in blocks)
        entries = [
            entry | {"offset": place, "length": len(content)}
            for (entry, content), place in zip(blocks, places, strict=True)
        ]
        return self.sealed_update(entries, [content for _, content in blocks])

    def sealed_update(self, entries: list[dict[str, Any]], contents: list[bytes]) -> bytes:
        """An update of this header and these contents, one after another."""
        length = entries[-1]["offset"] + entries[-1]["length"]
        header = pack(self.fields | {"length": length, "blocks": entries})
        data = pack(header) + b"\xc4\x40" + SILO.sign(UPDATE, header)
        places = offsets(len(content) for content in contents)
        blocks = [
            TensorEntry("", "", "", (), place, len(content), b"")
            for place, content in zip(places, contents, strict=True)
        ]
        return data + b"".join(
            gap + content for gap, content in zip(gaps(len(data), blocks), contents, strict=True)
        )


def refused_cases(good: Path) -> Iterator[tuple[str, str, bytes, str]]:
    """Name, code, bytes and reason."""
    taken = SplitUpdate(good)
    start = base(taken.signed)

    def flip_block_byte(block: int) -> bytes:
        at = start + taken.blocks[block].offset + 1
        return taken.data[:at] + bytes([taken.data[at] ^ 1]) + taken.data[at + 1 :]

    yield "no-first", "malformed", taken.of(1, 2, 3, 4, 5, 6), "the first segment of a tensor is missing"
    yield "no-second", "malformed", taken.of(0, 2, 3, 4, 5, 6), "a segment in the middle is missing"
    yield "no-last", "malformed", taken.of(0, 1, 3, 4, 5, 6), "the last segment is missing"
    yield "no-end", "malformed", taken.of(0, 1, 2, 3, 4), "the list ends within a tensor"
    yield "twice", "malformed", taken.of(0, 1, 1, 2, 3, 4, 5, 6), "a segment comes twice"
    yield "again", "malformed", taken.of(0, 1, 2, 3, 4, 5, 0, 1, 2, 6), "a tensor comes twice"
    yield "last-first", "malformed", taken.of(2, 0, 1, 3, 4, 5, 6), "the last segment comes first"
    yield "between", "malformed", taken.of(0, 3, 1, 2, 4, 5, 6), "another tensor between two segments"
    yield "order", "unexpected-block", taken.of(0, 1, 2, 4, 5, 3, 6), "tensors out of the contract's order"
    yield "missing", "missing-block", taken.of(0, 1, 2, 3, 6), "all segments of a tensor are missing"
    yield "whole", "malformed", taken.cut(140), "a tensor in one block although it is larger than a segment"
    yield "smaller", "malformed", taken.cut(60, 64, 16), "a segment is smaller than it must be"
    yield "larger", "malformed", taken.cut(64, 76), "the last segment is larger than one may be"
    yield "more", "malformed", taken.cut(64, 64, 12, 0), "an empty segment after the last"
    yield "overlap", "malformed", taken.change_block(1, offset=0), "a segment lies where the one before does"
    yield "hole", "malformed", taken.change_block(1, offset=192), "a hole between segments"
    for field, value in (("kind", "class_means"), ("dtype", "int32"), ("shape", [7, 5])):
        yield (
            f"other-{field}",
            "malformed",
            taken.change_block(1, **{field: value}),
            f"segments differ in {field}",
        )
    for block, name in enumerate(("first", "second", "last")):
        yield (
            f"flipped-{name}",
            "digest-mismatch",
            flip_block_byte(block),
            f"a bit of the {name} segment is flipped",
        )
    contents = [*taken.contents[:1], taken.contents[1][::-1], *taken.contents[2:]]
    yield (
        "swapped",
        "digest-mismatch",
        taken.sealed_update(taken.fields["blocks"], contents),
        "other bytes in a segment",
    )
    gap = start + taken.blocks[1].offset - 6
    hidden = taken.data[:gap] + b"\x2a" + taken.data[gap + 1 :]
    yield "padding", "malformed", hidden, "something is hidden between two segments"
    nan = np.full(16, np.nan, np.float32).tobytes()
    entries = [
        e | {"digest": hashlib.sha256(nan).digest()} if i == 1 else e
        for i, e in enumerate(taken.fields["blocks"])
    ]
    contents = [taken.contents[0], nan, *taken.contents[2:]]
    yield "nan", "not-finite", taken.sealed_update(entries, contents), "a segment holds NaN"
