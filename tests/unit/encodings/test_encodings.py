"""Encodings of model tensors: how far they are off, equal bytes for equal numbers, and what their checks refuse."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedsilo.encodings.encoding import Encoding, in_memory_parts
from fedsilo.encodings.float32 import Float32Encoding
from fedsilo.encodings.halves import BFloat16Encoding, Float16Encoding
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.topk import TopKEncoding
from fedsilo.encodings.zstd import ZstdEncoding
from fedsilo.errors import Problem
from fedsilo.wire import TensorSpec, spec_of

PLAIN_ENCODINGS: list[Encoding] = [
    Float32Encoding(),
    BFloat16Encoding(),
    Float16Encoding(),
    Int8Encoding(16),
    Int8Encoding(),
    TopKEncoding(0.1),
    TopKEncoding(1.0),
]
ENCODINGS = [*PLAIN_ENCODINGS, *map(ZstdEncoding, PLAIN_ENCODINGS)]

shapes = st.sampled_from([(), (0,), (1,), (7,), (16,), (17,), (3, 11), (5, 4, 30)])
finite_floats = st.floats(-60_000, 60_000, width=32)
tensors = shapes.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=finite_floats))


def spec(values: np.ndarray) -> TensorSpec:
    return TensorSpec("w", values.shape, "float32")


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@settings(max_examples=40)
@given(values=tensors)
def test_parts_are_those_announced_and_give_a_tensor_of_the_same_form(
    encoding: Encoding, values: np.ndarray
) -> None:
    before = values.copy()
    parts = encoding.encode(values)
    announced = encoding.parts(spec(values))
    found = [spec_of(p.name, part) for p, part in zip(announced, parts, strict=True)]
    if encoding.compressed and found[-1].size < announced[-1].size:
        found[-1] = replace(found[-1], shape=announced[-1].shape)
    assert found == list(announced)
    encoding.check(spec(values), in_memory_parts(parts))
    decoded = encoding.decode(parts, values.shape)
    assert (decoded.dtype, decoded.shape) == (values.dtype, values.shape)
    assert decoded.flags.writeable and values.tobytes() == before.tobytes()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@settings(max_examples=40)
@given(values=tensors)
def test_what_was_decoded_is_encoded_to_the_same_tensor_again(encoding: Encoding, values: np.ndarray) -> None:
    decoded = encoding.decode(encoding.encode(values), values.shape)
    again = encoding.decode(encoding.encode(decoded), values.shape)
    assert np.array_equal(again, decoded)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@settings(max_examples=40)
@given(values=tensors, data=st.data())
def test_a_piece_is_that_of_the_whole(encoding: Encoding, values: np.ndarray, data: st.DataObject) -> None:
    parts = encoding.encode(values)
    first = data.draw(st.integers(0, values.size))
    count = data.draw(st.integers(0, values.size - first))

    def read(part: int, begin: int, length: int) -> np.ndarray:
        flat = parts[part].reshape(-1)
        assert begin + length <= flat.size
        return np.asarray(flat[begin : begin + length])

    whole = encoding.decode(parts, values.shape).reshape(-1)
    piece = encoding.piece(read, values.size, first, count)
    assert piece.tobytes() == whole[first : first + count].tobytes()


@settings(max_examples=40)
@given(values=tensors)
def test_numbers_are_off_by_no_more_than_the_encoding_says(values: np.ndarray) -> None:
    def decoding_error(encoding: Encoding) -> np.ndarray:
        decoded = encoding.decode(encoding.encode(values), values.shape)
        return np.asarray(np.abs(decoded.astype(np.float64) - values))

    size = np.abs(values.astype(np.float64))
    assert (decoding_error(BFloat16Encoding()) <= size * 2.0**-8 + 2.0**-134).all()
    assert (decoding_error(Float16Encoding()) <= size * 2.0**-11 + 2.0**-25).all()
    largest = size.max(initial=0.0)
    assert (decoding_error(Int8Encoding()) <= largest / 127 * 0.5001 + 2.0**-140).all()


@settings(max_examples=40)
@given(values=tensors, fraction=st.sampled_from([0.001, 0.1, 0.5, 1.0]))
def test_topk_keeps_the_largest_and_of_equal_ones_the_first(values: np.ndarray, fraction: float) -> None:
    indices, kept = TopKEncoding(fraction).encode(values)
    flat = values.reshape(-1)
    order = sorted(range(flat.size), key=lambda place: (-abs(flat[place]), place))
    assert indices.tolist() == sorted(order[: ceil(fraction * flat.size)])
    assert kept.tobytes() == flat[indices].tobytes()


def test_a_fraction_is_the_decimal_that_is_written() -> None:
    assert TopKEncoding(0.07).kept_count(100) == 7  # 0.07 * 100 is a little more than 7 in binary
    assert TopKEncoding(0.01).kept_count(1) == 1


def test_halves_round_to_the_nearest_and_ties_to_even() -> None:
    one = np.float32(1)
    values = one + np.array([0.0, 2**-8, 2**-8 + 2**-20, 3 * 2**-8, 2**-9], np.float32)
    decoded = BFloat16Encoding().decode(BFloat16Encoding().encode(values), values.shape)
    assert decoded.tolist() == [1.0, 1.0, 1 + 2**-7, 1 + 2**-6, 1.0]


def test_a_block_of_int8_has_the_scale_of_its_own_largest_number() -> None:
    values = np.zeros(40, np.float32)
    values[3], values[20] = 127.0, -2.54
    scales, whole = Int8Encoding(16).encode(values)
    assert scales.tolist() == [1.0, pytest.approx(0.02, rel=1e-4), 0.0]
    assert {place: int(whole[place]) for place in np.flatnonzero(whole)} == {3: 127, 20: -127}


def test_the_bytes_are_the_same_on_every_machine() -> None:
    # Cubes of integers, exact: a power of float32 differs in its last bit from one kind of processor to another.
    cubes = (np.arange(-600, 600, dtype=np.int64) ** 3).astype(np.float32)
    values = (cubes / np.float32(7)).reshape(30, 40)
    digests = {
        str(encoding): hashlib.sha256(
            b"".join(part.tobytes() for part in encoding.encode(values))
        ).hexdigest()[:16]
        for encoding in (BFloat16Encoding(), Int8Encoding(), TopKEncoding(0.05))
    }
    assert digests == {
        "BFloat16Encoding()": "e9125153d74711dc",
        "Int8Encoding(block=256)": "3fb72e02e7247748",
        "TopKEncoding(fraction=0.05)": "da37e8d9bee0b968",
    }


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_diverged_is_refused(encoding: Encoding, bad: float) -> None:
    values = np.ones(600, np.float32)
    values[300] = bad
    with pytest.raises(Problem) as refused:
        encoding.check(spec(values), in_memory_parts(encoding.encode(values)))
    assert refused.value.code == "not-finite"


def test_float16_has_no_numbers_from_65520_on() -> None:
    values = np.array([65504, 65520], np.float32)
    with pytest.raises(Problem, match=r"block w: holds NaN or infinity"):
        Float16Encoding().check(spec(values), in_memory_parts(Float16Encoding().encode(values)))


HOSTILE_INT8 = {
    "negative": ([-1.0], [3] * 20, "a scale is not from 0 to 2"),
    "overflows": ([2.0**122], [127] * 20, "a scale is not from 0 to 2"),
    "minus 128": ([1.0], [-128] * 20, "holds -128"),
}


@pytest.mark.parametrize("case", HOSTILE_INT8)
def test_int8_that_no_silo_encodes_is_refused(case: str) -> None:
    scales, whole, text = HOSTILE_INT8[case]
    parts = np.array(scales * 2, np.float32), np.array(whole, np.int8)
    with pytest.raises(Problem, match=text) as refused:
        Int8Encoding(16).check(TensorSpec("w", (20,), "float32"), in_memory_parts(parts))
    assert refused.value.code == "malformed"


@pytest.mark.parametrize("indices", [[1, 1], [2, 1], [3, 20], [0, 2**32 - 1]], ids=str)
def test_indices_that_repeat_descend_or_leave_the_tensor_are_refused(indices: list[int]) -> None:
    parts = np.array(indices, np.uint32), np.ones(2, np.float32)
    with pytest.raises(Problem, match=r"block w\.indices: must ascend") as refused:
        TopKEncoding(0.1).check(TensorSpec("w", (20,), "float32"), in_memory_parts(parts))
    assert refused.value.code == "malformed"


def test_a_tensor_has_as_many_numbers_as_indices_can_name() -> None:
    assert TopKEncoding(fraction=0.5).parts(TensorSpec("w", (1 << 32,), "float32"))[0].shape == (1 << 31,)
    with pytest.raises(Problem, match=r"too-long: tensor w: 4294967297 numbers"):
        TopKEncoding(fraction=0.5).parts(TensorSpec("w", ((1 << 32) + 1,), "float32"))


def test_indices_are_compared_across_the_pieces_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsilo.encodings.encoding.CHUNK_NUMBERS", 2)
    parts = np.array([1, 5, 5, 7], np.uint32), np.ones(4, np.float32)
    with pytest.raises(Problem, match="must ascend"):
        TopKEncoding(0.5).check(TensorSpec("w", (8,), "float32"), in_memory_parts(parts))
