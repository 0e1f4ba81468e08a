"""Two bytes a number: bfloat16 and IEEE's float16, rounded to nearest, ties to even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedsilo.encodings.encoding import Encoding, Parts, ReadPart, SentParts, chunks, not_finite
from fedsilo.wire.tensors import TensorSpec

_EXPONENT = np.uint16(0x7F80)
_QUIET_NAN = np.uint16(0x7FC0)


@dataclass(frozen=True)
class Float16Encoding(Encoding):
    """Half precision with 11 significant bits. Magnitudes from 65520 on are infinity, which is refused."""

    name: ClassVar[str] = "float16"

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        return (TensorSpec(tensor.name, tensor.shape, "float16"),)

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Rounded by the processor or NumPy as IEEE 754 says."""
        with np.errstate(over="ignore"):
            return (np.asarray(values).astype(np.float16, order="C"),)

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return parts[0].astype(np.float32).reshape(shape)

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        del size
        return self.decode([read(0, first, count)], (count,))

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """No NaN, no infinity."""
        for numbers in chunks(sent.read, 0, tensor.size):
            if not np.isfinite(numbers).all():
                raise not_finite(tensor.name)


@dataclass(frozen=True)
class BFloat16Encoding(Encoding):
    """8 significant bits and float32's range: the upper half of a float32, as uint16 since NumPy has no such dtype."""

    name: ClassVar[str] = "bfloat16"

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        return (TensorSpec(tensor.name, tensor.shape, "uint16"),)

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Round by integers, adding half of the lower part, less one where the upper is even; the rest is cut off."""
        numbers = np.array(values, np.float32)
        bits = numbers.reshape(-1).view(np.uint32)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        odd += np.uint32(0x7FFF)
        with np.errstate(over="ignore"):  # of NaN, which is set below
            odd += bits
        upper = (odd >> np.uint32(16)).astype(np.uint16)
        upper[np.isnan(numbers.reshape(-1))] = _QUIET_NAN
        return (upper.reshape(numbers.shape),)

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        """Decode exactly, since the lower half of each float32 is 0."""
        bits = parts[0].reshape(-1).astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).reshape(shape)

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        del size
        return self.decode([read(0, first, count)], (count,))

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """No NaN, no infinity: not all bits of the exponent are set."""
        for bits in chunks(sent.read, 0, tensor.size):
            if ((bits & _EXPONENT) == _EXPONENT).any():
                raise not_finite(tensor.name)
