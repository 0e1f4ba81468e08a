"""The models of a round's silos, a piece of a tensor of all of them at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.updates.equality import equal_in
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.updates.summation import FlatTensor

PIECE_BYTES = 8 << 20
"""Bytes of a piece of the numbers of all silos together, in double precision."""

LARGEST_MAGNITUDE = 1e140
"""Magnitude beyond which a number counts as this one: sums of squares of as many as a model has stay finite."""


@dataclass(frozen=True)
class Models:
    """Models that are open.

    :param tensors: name -> the silos' tensors, in the silos' order.
    """

    tensors: Mapping[str, Sequence[FlatTensor]]

    @property
    def silos(self) -> int:
        """How many there are."""
        return len(next(iter(self.tensors.values())))

    @property
    def floats(self) -> list[str]:
        """Names of the tensors of floating-point numbers, from which distances follow."""
        return [name for name in self.tensors if self.dtype(name).kind == "f"]

    @property
    def non_float_names(self) -> list[str]:
        """Names of the tensors of other numbers, such as the counters of batch normalisation."""
        return [name for name in self.tensors if self.dtype(name).kind != "f"]

    def pieces(self, name: str) -> Iterator[tuple[slice, np.ndarray]]:
        """Places in the flat tensor, and the silos' numbers there, (silos, n) in double precision."""
        for place, rows in self._rows(name):
            yield place, bounded_numbers(np.stack(rows))

    def put_equal(self, name: str, found: np.ndarray, sent: np.ndarray | None = None) -> None:
        """Write what is the same in all models, to the bit, into the flat tensor that a rule has found.

        :param sent: flat tensor of a model that counts as well, if any.
        """
        for place, rows in self._rows(name):
            where = equal_in(rows if sent is None else [*rows, sent[place]])
            np.copyto(found[place], rows[0], where=where)

    def _rows(self, name: str) -> Iterator[tuple[slice, list[np.ndarray]]]:
        tensors, size = self.tensors[name], self.size(name)
        step = max(PIECE_BYTES // (8 * len(tensors)), 1)
        for first in range(0, size, step):
            last = min(first + step, size)
            yield (
                slice(first, last),
                [tensor.read(first, np.empty(last - first, tensor.dtype)) for tensor in tensors],
            )

    def size(self, name: str) -> int:
        """How many numbers the tensor has."""
        return prod(self.shape(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor of this name."""
        return self.tensors[name][0].shape

    def dtype(self, name: str) -> np.dtype:
        """Element type of the tensor of this name."""
        return self.tensors[name][0].dtype


def bounded_numbers(numbers: np.ndarray) -> np.ndarray:
    """Numbers in double precision, of a magnitude that can be squared."""
    found = numbers.astype(np.float64)
    return np.clip(found, -LARGEST_MAGNITUDE, LARGEST_MAGNITUDE, out=found)


@contextmanager
def open_models(updates: RoundUpdates, kind: str, silos: Sequence[str]) -> Iterator[Models]:
    """The silos' tensors of a kind, all open at once.

    :raises MethodError: when they have not the same tensors, of which a rule could not say whose count.
    """
    with ExitStack() as files:
        opened = [files.enter_context(updates.open_tensors(silo, kind)) for silo in silos]
        names = list(opened[0])
        for silo, tensors in zip(silos, opened, strict=True):
            for name in names if set(tensors) == set(names) else sorted(set(tensors) ^ set(names)):
                if name not in tensors or tensors[name].shape != opened[0][name].shape:
                    raise MethodError(
                        f"tensor {name}: silo {silo} sent another shape than {silos[0]}, or only one of them sent it; "
                        "spec.aggregation.rule needs the same tensors of all silos"
                    )
        yield Models({name: [tensors[name] for tensors in opened] for name in names})
