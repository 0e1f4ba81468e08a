"""Four bytes a number, as they are: what compression without another encoding is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedsilo.encodings.encoding import Encoding, Parts, ReadPart, SentParts, chunks, not_finite
from fedsilo.wire.tensors import TensorSpec


@dataclass(frozen=True)
class Float32Encoding(Encoding):
    """The tensor itself, each number in 32 bits."""

    name: ClassVar[str] = "float32"

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        return (tensor,)

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(values, np.float32),)

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        return np.array(parts[0], np.float32).reshape(shape)

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        del size
        return read(0, first, count)

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """No NaN, no infinity."""
        for numbers in chunks(sent.read, 0, tensor.size):
            if not np.isfinite(numbers).all():
                raise not_finite(tensor.name)
