"""What an encoding is: from a float32 tensor to parts of fixed dtypes and shapes, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.errors import Problem
from fedsilo.wire.tensors import TensorSpec

CHUNK_NUMBERS = 1 << 18
"""Elements that are checked at a time, so that a check's memory does not grow with the tensor."""

Parts = Sequence[np.ndarray]

ReadPart = Callable[[int, int, int], np.ndarray]
"""Elements of a part: which part, the first element, how many."""


@dataclass(frozen=True)
class SentParts:
    """Parts as they were sent.

    :param read: their elements.
    :param sizes: how many elements each has.
    """

    read: ReadPart
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Encoding(ABC):
    """One way to write a float32 tensor in fewer bytes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the encoding as `spec.communication` says it."""

    @property
    def sparse(self) -> bool:
        """Whether most numbers are left out, so that only differences can be sent."""
        return False

    @property
    def compressed(self) -> bool:
        """Whether the last part may be shorter than `parts` says."""
        return False

    @abstractmethod
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        """What the tensor becomes; the last part has its name, and the others are small beside it."""

    @abstractmethod
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """The parts of a float32 tensor. NaN and infinity give parts that `check` or the wire refuses."""

    @abstractmethod
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor, float32, new and writable."""

    @abstractmethod
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        """Some consecutive numbers of a tensor of so many, as `decode` gives them; little else of the parts is read."""

    @abstractmethod
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """Return if finite numbers come of these parts, whose dtypes and shapes are as they must be.

        :raises Problem: `not-finite` or `malformed`.
        """


def part(tensor: TensorSpec, what: str, shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """A part beside the one that has the tensor's name."""
    return TensorSpec(f"{tensor.name}.{what}", shape, dtype)


def in_memory_parts(parts: Parts) -> SentParts:
    """Parts that are held in memory, as they would be read if they had been sent."""
    return SentParts(
        lambda part, first, count: parts[part].reshape(-1)[first : first + count],
        tuple(part.size for part in parts),
    )


def chunks(read: ReadPart, part: int, size: int) -> Iterable[np.ndarray]:
    """The elements of a part, a few at a time."""
    return (read(part, first, min(CHUNK_NUMBERS, size - first)) for first in range(0, size, CHUNK_NUMBERS))


def not_finite(name: str) -> Problem:
    """The refusal of NaN and infinity, as the wire has it for floats."""
    return Problem(
        "not-finite", f"block {name}: holds NaN or infinity; lower the learning rate or clip gradients"
    )
