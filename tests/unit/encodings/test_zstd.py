"""Compressed parts of tensors: what they save, and frames that claim or yield something else than the contract has."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedsilo.encodings.encoding import Encoding, SentParts, in_memory_parts
from fedsilo.encodings.float32 import Float32Encoding
from fedsilo.encodings.halves import BFloat16Encoding
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.topk import TopKEncoding
from fedsilo.encodings.zstd import FRAME_ELEMENTS, MAX_FRAME_BYTES, ZstdEncoding
from fedsilo.errors import Problem
from fedsilo.wire import TensorSpec

SIZE = FRAME_ELEMENTS + 1000
"""Numbers in two frames."""

ENCODING = ZstdEncoding(Float32Encoding())
TENSOR = TensorSpec("w", (SIZE,), "float32")


def sent_parts(*frames: bytes, more: bytes = b"") -> SentParts:
    """Parts of these frames, rightly listed."""
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    return in_memory_parts([lengths, np.frombuffer(b"".join(frames) + more, np.uint8)])


def frame(size: int, **options: object) -> bytes:
    """An honest one, of zeros."""
    compressor = zstandard.ZstdCompressor(**options)  # type: ignore[arg-type]
    return compressor.compress(bytes(size))


def claiming_frame(size: int) -> bytes:
    """The beginning of a frame, whose head says how much it holds."""
    compressor = zstandard.ZstdCompressor().compressobj(size=size)
    return compressor.compress(bytes(4000)) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


def streamed_frame(size: int, window_log: int) -> bytes:
    """A frame that does not say how much it holds."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(bytes(size)) + compressor.flush()


FIRST_FRAME, SECOND_FRAME = frame(4 * FRAME_ELEMENTS), frame(4000)


def test_honest_frames_are_taken() -> None:
    ENCODING.check(TENSOR, sent_parts(FIRST_FRAME, SECOND_FRAME))
    ENCODING.check(TENSOR, sent_parts(FIRST_FRAME, bytes(4000)))


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (sent_parts(FIRST_FRAME, claiming_frame(1 << 30)), "frame 1: claims 1073741824 bytes"),
        (sent_parts(FIRST_FRAME, frame(3999)), "frame 1: claims 3999 bytes"),
        (sent_parts(FIRST_FRAME, streamed_frame(4000, 10)), "frame 1: claims"),
        (sent_parts(FIRST_FRAME, streamed_frame(1 << 24, 27)), "frame 1: claims"),
        (sent_parts(FIRST_FRAME, SECOND_FRAME[:-1]), "frame 1: cannot be decompressed"),
        (sent_parts(FIRST_FRAME, SECOND_FRAME + SECOND_FRAME), "frame 1: cannot be decompressed"),
        (sent_parts(FIRST_FRAME, SECOND_FRAME[:9] + b"\xff" + SECOND_FRAME[10:]), "frame 1: "),
        (
            sent_parts(FIRST_FRAME, b"\x50\x2a\x4d\x18\x04\x00\x00\x00none"),
            "frame 1: neither 4000 bytes as they are nor",
        ),
        (sent_parts(FIRST_FRAME, bytes(3998)), "frame 1: neither"),
        (sent_parts(FIRST_FRAME, bytes(4001)), "frame 1: neither"),
        (sent_parts(FIRST_FRAME, b""), "a frame's length is not from 1 to"),
        (sent_parts(FIRST_FRAME, bytes(MAX_FRAME_BYTES + 1)), "a frame's length is not from 1 to"),
        (sent_parts(FIRST_FRAME, SECOND_FRAME, more=b"x"), "its frames have"),
        (
            in_memory_parts(
                [sent_parts(FIRST_FRAME, SECOND_FRAME).read(0, 0, 2), np.frombuffer(FIRST_FRAME, np.uint8)]
            ),
            "its frames have",
        ),
    ],
)
def test_other_frames_are_refused(parts: SentParts, problem: str) -> None:
    with pytest.raises(Problem, match=problem) as refused:
        ENCODING.check(TENSOR, parts)
    assert refused.value.code == "malformed"


def test_a_frame_that_yields_more_than_it_claims_is_refused() -> None:
    bomb = bytearray(frame(1 << 20))
    honest = zstandard.get_frame_parameters(bytes(bomb))
    assert honest.content_size == 1 << 20
    place = bytes(bomb).index((1 << 20).to_bytes(4, "little"))
    bomb[place : place + 4] = (4000).to_bytes(4, "little")
    assert zstandard.get_frame_parameters(bytes(bomb)).content_size == 4000
    with pytest.raises(Problem, match="frame 1: cannot be decompressed"):
        ENCODING.check(TENSOR, sent_parts(FIRST_FRAME, bytes(bomb)))


def test_what_a_frame_claims_costs_no_memory() -> None:
    bomb = frame(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match="claims"):
            ENCODING.check(TENSOR, sent_parts(FIRST_FRAME, bomb))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(bomb) < 40_000 and peak < 16 << 20


def test_numbers_that_are_not_finite_are_found_behind_frames() -> None:
    values = np.ones(SIZE, np.float32)
    values[-1] = np.nan
    with pytest.raises(Problem, match="block w: holds NaN") as refused:
        ENCODING.check(TENSOR, in_memory_parts(ENCODING.encode(values)))
    assert refused.value.code == "not-finite"


@pytest.mark.parametrize(
    "inner", [Float32Encoding(), BFloat16Encoding(), Int8Encoding(), TopKEncoding(0.9)], ids=str
)
def test_no_bit_changes_across_frames(inner: Encoding) -> None:
    values = np.random.default_rng(3).normal(size=3 * FRAME_ELEMENTS + 5).astype(np.float32)
    parts = ZstdEncoding(inner).encode(values)
    plain = inner.decode(inner.encode(values), values.shape)
    assert ZstdEncoding(inner).decode(parts, values.shape).tobytes() == plain.tobytes()
    ZstdEncoding(inner).check(TensorSpec("w", values.shape, "float32"), in_memory_parts(parts))
    for first in (0, FRAME_ELEMENTS - 3, 2 * FRAME_ELEMENTS):
        piece = ZstdEncoding(inner).piece(in_memory_parts(parts).read, values.size, first, FRAME_ELEMENTS)
        assert piece.tobytes() == plain[first : first + FRAME_ELEMENTS].tobytes()


@settings(max_examples=60)
@given(
    values=arrays.arrays(
        np.float32, st.sampled_from([(), (0,), (1,), (3, 11), (700,)]), elements=st.floats(width=32)
    )
)
def test_float32_keeps_every_bit_of_any_number(values: np.ndarray) -> None:
    parts = ENCODING.encode(values)
    assert ENCODING.decode(parts, values.shape).tobytes() == values.tobytes()
    assert parts[1].nbytes <= values.nbytes


@pytest.mark.parametrize(
    ("inner", "least", "most"),
    [
        (Float32Encoding(), 0.8, 0.9),
        (BFloat16Encoding(), 0.6, 0.75),
        (Int8Encoding(), 0.85, 0.97),
        (TopKEncoding(0.1), 0.5, 0.7),
    ],
    ids=str,
)
def test_weights_shrink_as_the_documentation_says(inner: Encoding, least: float, most: float) -> None:
    values = np.random.default_rng(5).normal(0, 0.02, 1 << 18).astype(np.float32)
    plain, compressed = (
        sum(part.nbytes for part in encoding.encode(values)) for encoding in (inner, ZstdEncoding(inner))
    )
    assert least < compressed / plain < most


@settings(max_examples=200)
@given(data=st.data())
def test_changed_frames_are_refused_or_finite(data: st.DataObject) -> None:
    frames = bytearray(ENCODING.encode(np.linspace(-1, 1, 2000, dtype=np.float32))[1].tobytes())
    place = data.draw(st.integers(0, len(frames) - 1))
    frames[place] ^= data.draw(st.integers(1, 255))
    tensor = TensorSpec("w", (2000,), "float32")
    parts = sent_parts(bytes(frames))
    try:
        ENCODING.check(tensor, parts)
    except Problem as problem:
        assert problem.code in ("malformed", "not-finite")
    else:
        assert np.isfinite(
            ENCODING.decode([parts.read(0, 0, 1), parts.read(1, 0, len(frames))], (2000,))
        ).all()
