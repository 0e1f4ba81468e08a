"""Tensors in several blocks of an update: any of them, cut anywhere, and every way in which segments may be wrong."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import Problem
from fedsilo.wire import (
    Contract,
    ExpectedBlock,
    TensorSpec,
    UpdateCheck,
    UpdateHeader,
    lay_out,
    new_update,
    open_update,
    stored_digest,
)
from fedsilo.wire.fields import pack, unpack_map
from fedsilo.wire.header import SEGMENT_BYTES, decode_header, encode_header, offsets, segment_lengths
from fedsilo.wire.tensors import DTYPES, MAX_TENSOR_BYTES
from tests.segments import segments_of
from tests.unit.wire.examples import EXPECTED_UPDATE, KEY, check, contents_of, forge_signed, refusal, write
from tests.updates import digest_of

LIMIT_BYTES = 64
GIB = 1 << 30

dtypes = st.sampled_from(sorted(DTYPES.keys() - {"bool"}))
shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
trees = st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=5)
limits = st.sampled_from([64, 128, 192])


def distinct_blocks(tree: list[tuple[tuple[int, ...], str]]) -> list[tuple[ExpectedBlock, np.ndarray]]:
    """Blocks of these forms, with numbers that all differ."""
    return [
        (
            ExpectedBlock("model", f"t{number}", shape, dtype),
            (np.arange(math.prod(shape)) % 100 + number).astype(DTYPES[dtype]).reshape(shape),
        )
        for number, (shape, dtype) in enumerate(tree)
    ]


def expecting(blocks: list[tuple[ExpectedBlock, np.ndarray]]) -> Any:
    return dataclasses.replace(EXPECTED_UPDATE, contract=Contract(tuple(block for block, _ in blocks)))


def write_blocks(path: Path, blocks: list[tuple[ExpectedBlock, np.ndarray]]) -> bytes:
    return write(path, contract=expecting(blocks).contract, blocks=blocks, metrics={})


EXAMPLE = distinct_blocks([((5, 7), "float32"), ((), "int64"), ((8, 8), "float16"), ((0, 3), "float32")])
"""Distinct blocks of three segments, one, two and an empty one."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with segments_of(LIMIT_BYTES):
        return write_blocks(tmp_path_factory.mktemp("update") / "update", EXAMPLE)


def outcome(data: bytes, *sizes: int) -> str:
    """The code with which the example is refused, or its digest."""
    with segments_of(LIMIT_BYTES):
        try:
            return check(data, *sizes, expected=expecting(EXAMPLE)).digest
        except Problem as problem:
            return problem.code


@settings(max_examples=60)
@given(tree=trees, limit=limits, pieces=st.lists(st.integers(0, 300), max_size=8), draw=st.data())
def test_any_tensors_cut_at_any_limit_arrive_as_they_were(
    tree: list[tuple[tuple[int, ...], str]], limit: int, pieces: list[int], draw: st.DataObject
) -> None:
    blocks = distinct_blocks(tree)
    with tempfile.TemporaryDirectory() as folder, segments_of(limit):
        path = Path(folder) / "update"
        data = write_blocks(path, blocks)
        accepted = check(data, *pieces, expected=expecting(blocks))
        assert accepted.digest == stored_digest(path) == digest_of(data)
        lengths = Counter[str]()
        for entry in accepted.header.blocks:
            assert entry.length <= limit
            lengths[entry.name] += entry.length
        assert lengths == {block.name: array.nbytes for block, array in blocks}
        assert [entry.name for entry in accepted.header.tensors] == [block.name for block, _ in blocks]
        with open_update(path) as update:
            for block, array in blocks:
                assert update.tensor(block.name).tobytes() == array.tobytes()
                first = draw.draw(st.integers(0, array.size))
                part = np.empty(draw.draw(st.integers(0, array.size - first)), array.dtype)
                update.read(update.entry(block.name), first, part)
                np.testing.assert_array_equal(part, array.reshape(-1)[first : first + part.size])


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 80), min_size=1, max_size=20))
def test_the_writer_takes_pieces_across_segments(data: bytes, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, segments_of(LIMIT_BYTES):
        header = check(data, expected=expecting(EXAMPLE)).header
        with new_update(Path(folder) / "update", header, expecting(EXAMPLE).contract, KEY) as update:
            for block, array in reversed(EXAMPLE):
                content, number = array.tobytes(), 0
                while content:
                    size = sizes[number % len(sizes)]
                    update.write(block.name, memoryview(content[:size]))
                    content, number = content[size:], number + 1
                np.testing.assert_array_equal(update.read(block.name), array)
                np.testing.assert_array_equal(
                    update.read_items(block.name, array.size // 3, array.size // 2),
                    array.reshape(-1)[array.size // 3 :][: array.size // 2],
                )
            update.publish()
        assert (Path(folder) / "update").read_bytes() == data


def test_no_more_is_written_or_read_than_a_tensor_has(tmp_path: Path, data: bytes) -> None:
    with segments_of(LIMIT_BYTES):
        header = check(data, expected=expecting(EXAMPLE)).header
        with new_update(tmp_path / "update", header, expecting(EXAMPLE).contract, KEY) as update:
            for name, size in (("t0", 141), ("t2", 129), ("t3", 1)):
                with pytest.raises(ValueError, match=f"block {name}: "):
                    update.write(name, memoryview(bytes(size)))
        path = tmp_path / "update"
        path.write_bytes(data)
        with (
            open_update(path) as read,
            pytest.raises(ValueError, match="block t2: 128 bytes; has not 4 from 126"),
        ):
            read.read(read.entry("t2"), 63, np.empty(2, np.float16))


def test_every_flipped_byte_is_refused(data: bytes) -> None:
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        assert "-" in (found := outcome(bytes(damaged))) or found == "malformed", position


def test_every_truncation_is_refused(data: bytes) -> None:
    assert {outcome(data[:length]) for length in range(len(data))} == {"truncated"}
    assert outcome(data + b"\xc0") == "too-long"


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_segment_is_judged_as_soon_as_it_is_complete(data: bytes, damaged: int) -> None:
    with segments_of(LIMIT_BYTES):
        header = check(data, expected=expecting(EXAMPLE)).header
        start = len(data) - header.length
        segment = header.blocks[damaged]
        changed = bytearray(data)
        changed[start + segment.offset] ^= 1
        end = start + segment.offset + segment.length
        checker = UpdateCheck(expecting(EXAMPLE), KEY.verify_key)
        checker.feed(bytes(changed[: end - 1]))
        with pytest.raises(Problem, match=f"digest-mismatch: block t0, segment {damaged + 1} of 3: "):
            checker.feed(bytes(changed[end - 1 : end]))


@settings(max_examples=200)
@given(order=st.lists(st.integers(0, 6), max_size=10))
def test_no_other_list_of_blocks_is_accepted(data: bytes, order: list[int]) -> None:
    """Blocks that are missing, repeated or moved are refused, even where they are laid out as the format wants them."""
    with segments_of(LIMIT_BYTES):
        header = check(data, expected=expecting(EXAMPLE)).header
    contents = contents_of(data, header)
    entries = unpack_map("header", encode(header))["blocks"]
    places = offsets(len(contents[index]) for index in order)
    chosen = [entries[index] | {"offset": place} for index, place in zip(order, places, strict=True)]
    length = chosen[-1]["offset"] + chosen[-1]["length"] if chosen else 0
    fields = unpack_map("header", encode(header)) | {"blocks": chosen, "length": length}
    blocks = [dataclasses.replace(header.blocks[i], offset=at) for i, at in zip(order, places, strict=True)]
    forged = forge_signed(
        pack(fields), dataclasses.replace(header, blocks=tuple(blocks)), [contents[index] for index in order]
    )
    same = [header.blocks[i].name for i in order] == [block.name for block in header.blocks] and [
        header.blocks[i].length for i in order
    ] == [block.length for block in header.blocks]
    found = outcome(forged)
    assert (
        (found == digest_of(forged)) if same else found in ("malformed", "missing-block", "unexpected-block")
    )


@settings(max_examples=100)
@given(sizes=st.lists(st.integers(0, 140), min_size=1, max_size=5))
def test_a_tensor_is_cut_in_one_way(data: bytes, sizes: list[int]) -> None:
    with segments_of(LIMIT_BYTES):
        header = check(data, expected=expecting(EXAMPLE)).header
    fields = unpack_map("header", encode(header))
    first, rest = fields["blocks"][0], fields["blocks"][3:]
    lengths = [*sizes, 140 - sum(sizes)]
    lengths = [length for length in lengths if length >= 0]
    entries = [first | {"length": length} for length in lengths] + rest
    for entry, place in zip(entries, offsets(entry["length"] for entry in entries), strict=True):
        entry["offset"] = place
    fields |= {"blocks": entries, "length": entries[-1]["offset"] + entries[-1]["length"]}
    with segments_of(LIMIT_BYTES):
        if lengths == [64, 64, 12]:
            assert len(decode_header(pack(fields)).tensors) == 4
        else:
            with refusal("malformed"):
                decode_header(pack(fields))


def encode(header: UpdateHeader) -> bytes:
    with segments_of(LIMIT_BYTES):
        return encode_header(header)


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (0, [0]),
        (GIB - 4, [GIB - 4]),
        (GIB, [GIB]),
        (GIB + 4, [GIB, 4]),
        (4 * GIB, [GIB] * 4),
        (5 * GIB + 400, [GIB] * 5 + [400]),
        (MAX_TENSOR_BYTES, [GIB] * 1024),
    ],
)
def test_a_header_lists_a_block_for_each_gib(size: int, lengths: list[int]) -> None:
    """Sizes are real ones: no length needs more than the 32 bits of its head, and no tensor of up to 1 GiB is cut."""
    assert SEGMENT_BYTES == GIB
    assert list(segment_lengths(size)) == lengths
    blocks = lay_out(
        [("model", TensorSpec("w", (size // 4,), "float32")), ("model", TensorSpec("b", (), "int64"))]
    )
    header = decode_header(encode_header(dataclasses.replace(BLANK_HEADER, blocks=blocks)))
    assert [block.length for block in header.blocks] == [*lengths, 8]
    assert header.length == header.blocks[-1].offset + 8 >= size + 8
    assert [entry.name for entry in header.tensors] == ["w", "b"]
    Contract(
        (ExpectedBlock("model", "w", (size // 4,), "float32"), ExpectedBlock("model", "b", (), "int64"))
    ).check(header.tensors, {})
    uncut = (*blocks[:1], *blocks[-1:])
    if len(lengths) > 1:
        with refusal("malformed"):
            encode_header(dataclasses.replace(BLANK_HEADER, blocks=uncut))


BLANK_HEADER = UpdateHeader("job", "task", 1, "a/b", "0" * 16, bytes(32), bytes(32), 1, {}, ())


def test_what_no_tensor_can_have_is_refused_before_anything_is_made_for_it() -> None:
    for shape in ((MAX_TENSOR_BYTES + 1,), (1 << 62, 1 << 62), (1 << 40, 1 << 40, 1 << 40)):
        with refusal("too-long"):
            TensorSpec("w", shape, "uint8")
    TensorSpec("w", (MAX_TENSOR_BYTES,), "uint8")


@pytest.mark.parametrize("kind", ["feature_statistics", "confusion"])
def test_what_a_guard_holds_in_memory_is_one_gib_at_most(kind: str) -> None:
    ExpectedBlock(kind, "count", (GIB // 8,), "int64")
    ExpectedBlock("model", "count", (GIB // 8 + 1,), "int64")
    with pytest.raises(Problem, match=f"too-long: block count: 1073741832 bytes of kind {kind}"):
        ExpectedBlock(kind, "count", (GIB // 8 + 1,), "int64")
