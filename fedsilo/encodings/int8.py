"""One byte a number, with a scale for each block of consecutive numbers.

x is close to s q with whole q from -127 to 127. The scale s is the block's largest magnitude over 127, rounded up to 16
significant bits: then s q is exact in float32, and what was decoded is encoded to the same bytes again. A number is off
by at most s / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedsilo.encodings.encoding import Encoding, Parts, ReadPart, SentParts, chunks, not_finite, part
from fedsilo.errors import Problem
from fedsilo.wire.tensors import TensorSpec

LEVELS = 127

_CUT_BITS = np.uint32(0xFF)
"""The last eight of a float32's 24 significant bits, which a scale does not use."""

_LARGEST_SCALE = np.float32(2.0**121)
"""127 times as much is still finite."""


@dataclass(frozen=True)
class Int8Encoding(Encoding):
    """One byte a number, in the parts `<name>.scales`, float32, one for each block, and the numbers q.

    :param block: numbers of a block; the last may be shorter.
    """

    name: ClassVar[str] = "int8"
    block: int = 256

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        count = -(-tensor.size // self.block)
        return (
            part(tensor, "scales", (count,), "float32"),
            TensorSpec(tensor.name, tensor.shape, "int8"),
        )

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Rounded to nearest, ties to even."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        count = -(-flat.size // self.block)
        blocks = np.zeros((count, self.block), np.float32)
        blocks.reshape(-1)[: flat.size] = flat
        with np.errstate(all="ignore"):  # of NaN and infinity, which the scale tells of
            scales = _rounded_up(np.abs(blocks).max(axis=1, initial=0) / np.float32(LEVELS))
            usable = (scales > 0) & np.isfinite(scales)
            blocks /= np.where(usable, scales, np.float32(1))[:, None]
            np.rint(blocks, out=blocks)
        blocks[~usable] = 0
        whole = blocks.reshape(-1)[: flat.size].astype(np.int8)
        return scales, whole.reshape(values.shape)

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        scales, whole = parts
        flat = whole.reshape(-1).astype(np.float32)
        full = flat.size // self.block
        flat[: full * self.block].reshape(full, self.block)[...] *= scales[:full, None]
        if full < scales.size:
            flat[full * self.block :] *= scales[full]
        return flat.reshape(shape)

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        """From the beginning of the block that the first number is in."""
        del size
        before = first % self.block
        scales = read(0, first // self.block, -(-(before + count) // self.block))
        return self.decode([scales, read(1, first - before, before + count)], (before + count,))[before:]

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """Scales are finite and not negative, whatever they multiply; no q is -128."""
        for found in chunks(sent.read, 0, -(-tensor.size // self.block)):
            if not np.isfinite(found).all():
                raise not_finite(f"{tensor.name}.scales")
            if (found < 0).any() or (found > _LARGEST_SCALE).any():
                text = f"block {tensor.name}.scales: a scale is not from 0 to 2^121; encode the tensor again"
                raise Problem("malformed", text)
        for found in chunks(sent.read, 1, tensor.size):
            if found.min(initial=0) < -LEVELS:
                raise Problem("malformed", f"block {tensor.name}: holds -128; use -127 to 127")


def _rounded_up(scales: np.ndarray) -> np.ndarray:
    """Scales with 16 significant bits; NaN and infinity stay what they are."""
    bits = scales.astype(np.float32).view(np.uint32)
    up = ((bits + _CUT_BITS) & ~_CUT_BITS).view(np.float32)
    return np.where(np.isfinite(scales), up, scales)
