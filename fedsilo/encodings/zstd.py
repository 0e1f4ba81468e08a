"""The parts of another encoding, compressed without loss: byte planes in frames of Zstandard (RFC 8878).

The first bytes of all numbers come first, then all second bytes and so on: signs and exponents repeat, digits do not.
Each frame holds a fixed count of a part's numbers, so that what it decompresses to is known to the byte beforehand,
and a piece of a tensor is read by decompressing that piece alone. What would not shrink is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.encodings.encoding import Encoding, Parts, ReadPart, SentParts, in_memory_parts, part
from fedsilo.errors import Problem
from fedsilo.wire.tensors import DTYPES, TensorSpec, raw_bytes

FRAME_ELEMENTS = 1 << 17
"""Numbers of a frame: a plane of them is just one block of Zstandard, with statistics of its own."""

MAX_FRAME_BYTES = FRAME_ELEMENTS * 4
"""Most bytes that a frame decompresses to, and the largest window that it may ask for."""

LEVEL = 1
"""Level of the compression: higher ones take several times as long, and save nothing on planes of floats."""

_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class ZstdEncoding(Encoding):
    """Another encoding's parts, compressed: `<name>.frames`, uint32, the length of each frame, and the frames of all
    inner parts, one after another.

    The last part is at most as long as the inner parts are together.
    """

    inner: Encoding

    @property
    @override
    def name(self) -> str:
        """The inner encoding's, with this."""
        return f"{self.inner.name} with zstd"

    @property
    @override
    def sparse(self) -> bool:
        return self.inner.sparse

    @property
    @override
    def compressed(self) -> bool:
        return True

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        """Lengths, and the frames at their longest."""
        inner = self.inner.parts(tensor)
        count = sum(_frame_count(spec.size) for spec in inner)
        return (
            part(tensor, "frames", (count,), "uint32"),
            TensorSpec(tensor.name, (sum(spec.nbytes for spec in inner),), "uint8"),
        )

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """The bytes depend on the library's version; what they decompress to does not."""
        frames = [frame for inner in self.inner.encode(values) for frame in _compressed_frames(inner)]
        return np.array([len(frame) for frame in frames], np.uint32), np.frombuffer(
            b"".join(frames), np.uint8
        )

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        """What the inner encoding gives, exactly."""
        inner = self.inner.parts(TensorSpec("tensor", shape, "float32"))
        frames = _Frames("tensor", inner, in_memory_parts(parts).read)
        found = [frames.read(place, 0, spec.size).reshape(spec.shape) for place, spec in enumerate(inner)]
        return self.inner.decode(found, shape)

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        inner = self.inner.parts(TensorSpec("tensor", (size,), "float32"))
        return self.inner.piece(_Frames("tensor", inner, read).read, size, first, count)

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """Each frame decompresses to just the bytes of its numbers, and these to finite numbers.

        Memory is asked for by the contract's sizes alone, a frame at a time, whatever frames claim.
        """
        inner = self.inner.parts(tensor)
        frames = _Frames(tensor.name, inner, sent.read)
        if frames.length != sent.sizes[1]:
            text = f"its frames have {frames.length} bytes together, but {sent.sizes[1]} were sent"
            raise _malformed_problem(tensor.name, text)
        self.inner.check(tensor, SentParts(frames.read, tuple(spec.size for spec in inner)))


class _Frames:
    """The inner parts, of which frames are decompressed where they are read.

    :param name: of the tensor, for messages.
    :param read: of lengths and frames.
    :raises Problem: `malformed`, as does `read`.
    """

    def __init__(self, name: str, inner: tuple[TensorSpec, ...], read: ReadPart) -> None:
        self._name, self._read = name, read
        self._dtypes = [DTYPES[spec.dtype] for spec in inner]
        self._sizes = [spec.size for spec in inner]
        counts = [_frame_count(size) for size in self._sizes]
        self._first = [sum(counts[:place]) for place in range(len(counts))]
        lengths = read(0, 0, sum(counts)).astype(np.int64)
        if lengths.size and not 1 <= lengths.min() <= lengths.max() <= MAX_FRAME_BYTES:
            raise _malformed_problem(name, f"a frame's length is not from 1 to {MAX_FRAME_BYTES}")
        self._ends = np.cumsum(lengths)
        self._last: tuple[int, np.ndarray] | None = None  # frame that was read last, and its numbers

    @property
    def length(self) -> int:
        """Bytes of all frames."""
        return int(self._ends[-1]) if self._ends.size else 0

    def read(self, part: int, first: int, count: int) -> np.ndarray:
        """Elements of an inner part."""
        numbers = np.empty(count, self._dtypes[part])
        done = 0
        while done < count:
            frame, within = divmod(first + done, FRAME_ELEMENTS)
            found = self._frame(part, frame)[within : within + count - done]
            numbers[done : done + found.size] = found
            done += found.size
        return numbers

    def _frame(self, part: int, frame: int) -> np.ndarray:
        """All numbers of a frame."""
        place = self._first[part] + frame
        if self._last is None or self._last[0] != place:
            begin = int(self._ends[place - 1]) if place else 0
            data = self._read(1, begin, int(self._ends[place]) - begin).tobytes()
            size = min(FRAME_ELEMENTS, self._sizes[part] - frame * FRAME_ELEMENTS)
            dtype = self._dtypes[part]
            planes = _decompressed_frame(f"{self._name}: frame {place}", data, size * dtype.itemsize)
            self._last = place, _numbers(planes, dtype)
        return self._last[1]


def _frame_count(size: int) -> int:
    return -(-size // FRAME_ELEMENTS)


def _compressed_frames(numbers: np.ndarray) -> Iterator[bytes]:
    """A part as frames."""
    import zstandard  # only where tensors are compressed: the operator's image has no room for it

    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True)
    flat = numbers.reshape(-1)
    for first in range(0, flat.size, FRAME_ELEMENTS):
        piece = flat[first : first + FRAME_ELEMENTS]
        planes = raw_bytes(piece).reshape(piece.size, -1).T.tobytes()
        frame = compressor.compress(planes)
        yield frame if len(frame) < len(planes) else planes


def _decompressed_frame(what: str, data: bytes, size: int) -> bytes:
    """A frame's bytes, of which there are just so many."""
    import zstandard

    if len(data) == size:
        return data  # which did not shrink
    if not data.startswith(_MAGIC):
        raise _malformed_problem(what, f"neither {size} bytes as they are nor a frame of Zstandard")
    try:
        claimed = zstandard.get_frame_parameters(data)
        # Before memory is asked for, which the library does by what the frame claims.
        if claimed.content_size != size or claimed.window_size > MAX_FRAME_BYTES or claimed.dict_id:
            text = f"claims {claimed.content_size} bytes, a window of {claimed.window_size} and dictionary "
            text += f"{claimed.dict_id}; must be {size}, at most {MAX_FRAME_BYTES} and 0"
            raise _malformed_problem(what, text)
        found = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _malformed_problem(what, f"cannot be decompressed ({error})") from None
    if len(found) != size:
        raise _malformed_problem(what, f"decompresses to {len(found)} bytes; must be {size}")
    return found


def _numbers(planes: bytes, dtype: np.dtype) -> np.ndarray:
    """Numbers of which all first bytes come first, then all second ones, and so on."""
    rows = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    numbers = np.empty((rows.shape[1], dtype.itemsize), np.uint8)
    for place, row in enumerate(rows):  # three times as fast as a transposed copy
        numbers[:, place] = row
    return numbers.view(dtype).reshape(-1)


def _malformed_problem(what: str, problem: str) -> Problem:
    return Problem("malformed", f"block {what}: {problem}; encode the tensor again")
