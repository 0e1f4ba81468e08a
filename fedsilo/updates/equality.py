"""What all silos sent alike, which a mean leaves as it is, to the bit: tensors, and whole numbers in other tensors.

Weights of silos, and sums that they weigh, are rounded: three times a third of a number may be its neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EqualNumbers = tuple[np.ndarray, np.ndarray]
"""Where elements of a piece are equal, and which they are."""


class EqualityCheck:
    """Whole numbers of a piece that are the same in all tensors which were compared.

    :param buffers: of the piece's size: of the tensors' type, and two of booleans.
    :param before: what was equal in tensors that were added before; None where there were none.
    """

    def __init__(
        self, buffers: tuple[np.ndarray, np.ndarray, np.ndarray], before: EqualNumbers | None
    ) -> None:
        self._values, self._where, self._compared = buffers
        self._begun, self._left = before is not None, True
        if before is not None:
            self._where[...], values = before
            self._left = values.size > 0
            self._values[self._where] = values

    def compare(self, piece: np.ndarray) -> None:
        """Leave those that are the same in this piece too."""
        if not self._left:
            return
        if not self._begun:
            self._values[...], self._begun = piece, True
            self._where[...] = True if piece.dtype.kind != "f" else piece == np.trunc(piece)
        else:
            np.equal(as_bits(self._values), as_bits(piece), out=self._compared)
            np.logical_and(self._where, self._compared, out=self._where)
        self._left = bool(self._where.any())

    def put(self, total: np.ndarray) -> None:
        """Write them in the place of the sum."""
        if self._begun and self._left:
            np.copyto(total, self._values, where=self._where)

    def equal_numbers(self) -> EqualNumbers:
        """A copy, which outlives the buffers; of as good as no size where none is equal."""
        if not self._left:
            return np.zeros((), bool), self._values[:0].copy()
        return self._where.copy(), self._values[self._where]


def equal_in(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Where all rows are the same."""
    first, *others = (as_bits(row) for row in rows)
    return np.asarray(
        np.logical_and.reduce([np.ones(first.shape, bool), *(first == other for other in others)])
    )


def as_bits(array: np.ndarray) -> np.ndarray:
    """The array's elements as unsigned integers of their size."""
    bits: np.ndarray = array.view(f"u{array.dtype.itemsize}")
    return bits
