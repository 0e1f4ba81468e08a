"""A round's updates with the tensors that come of their parts, decoded a piece at a time while they are summed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np
from typing_extensions import override

from fedsilo.encodings.base import base_of
from fedsilo.encodings.encoding import Encoding
from fedsilo.encodings.registry import DELTA, encoding_in
from fedsilo.methods.state import Tree
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.updates.summation import FlatTensor
from fedsilo.wire import Contract, ExpectedBlock


@dataclass(frozen=True)
class EncodedTask:
    """What a silo's task said and handed out.

    :param trees: of the method, by their names in the task, whole.
    """

    contract: Contract
    trees: Mapping[str, Mapping[str, np.ndarray]]


class DecodedUpdates(RoundUpdates):
    """Updates whose tensors were sent as parts.

    :param updates: as they were sent.
    :param tasks: by silo, those that they answer.
    """

    def __init__(self, updates: RoundUpdates, tasks: Mapping[str, EncodedTask]) -> None:
        self.silos = updates.silos
        self._updates, self._tasks = updates, tasks

    @override
    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""
        return self._updates.samples(silo)

    @override
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""
        return self._updates.metrics(silo)

    @override
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind, in which the parts beside a tensor's own do not count."""
        encoded = self._tasks[silo].contract.encoded
        inner = {name for found in encoded for name in found.parts[:-1]}
        return tuple(name for name in self._updates.names(silo, kind) if name not in inner)

    @contextmanager
    @override
    def open_tensors(self, silo: str, kind: str) -> Iterator[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name, decoded where they are read."""
        contract = self._tasks[silo].contract
        encoding = encoding_in(contract)
        of_part = {found.parts[-1]: found for found in contract.encoded}
        inner = {name for found in contract.encoded for name in found.parts[:-1]}
        with self._updates.open_tensors(silo, kind) as blocks:
            tensors: dict[str, FlatTensor] = {}
            for name, block in blocks.items():
                if encoding is None or name not in of_part:
                    tensors |= {} if name in inner else {name: block}
                    continue
                found = of_part[name]
                base = self._base(silo, contract, found.tensor, encoding)
                parts = [blocks[part] for part in found.parts]
                tensors[name] = DecodedTensor(encoding, found.tensor.shape, parts, base)
            yield tensors

    @override
    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind."""
        with self.open_tensors(silo, kind) as tensors:
            return {name: _whole_array(tensor) for name, tensor in tensors.items()}

    def _base(
        self, silo: str, contract: Contract, tensor: ExpectedBlock, encoding: Encoding
    ) -> np.ndarray | None:
        """What the tensor was sent as a difference to."""
        differences = contract.encoding is not None and contract.encoding[DELTA]
        return base_of(tensor, self._tasks[silo].trees, encoding) if differences else None


class DecodedTensor:
    """A tensor whose parts are read and decoded a piece at a time.

    :param base: to which the decoded numbers are added.
    """

    def __init__(
        self,
        encoding: Encoding,
        shape: tuple[int, ...],
        parts: Sequence[FlatTensor],
        base: np.ndarray | None,
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(np.float32)
        self._encoding, self._parts = encoding, parts
        self._base = None if base is None else base.reshape(-1)

    def read(self, first: int, buffer: np.ndarray) -> np.ndarray:
        """Decoded numbers, in the buffer."""
        numbers = self._encoding.piece(self._read_part, prod(self.shape), first, buffer.size)
        if self._base is None:
            buffer[...] = numbers
        else:
            np.add(numbers, self._base[first : first + buffer.size], out=buffer)
        return buffer

    def _read_part(self, part: int, first: int, count: int) -> np.ndarray:
        tensor = self._parts[part]
        return tensor.read(first, np.empty(count, tensor.dtype))


def _whole_array(tensor: FlatTensor) -> np.ndarray:
    buffer = np.empty(prod(tensor.shape), tensor.dtype)
    return np.array(tensor.read(0, buffer)).reshape(tensor.shape)
