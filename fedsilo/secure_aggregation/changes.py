"""Tensors of a model as their changes: what silos were sent is taken off before they are added, and added to the mean.

A sum then has the precision of the changes, however large the numbers, and what no silo changes stays to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.wire import ExpectedBlock
from fedsilo.wire.tensors import DTYPES

_EXACT_MAGNITUDE = 2.0**62
"""Magnitude up to which a difference of two integers of 64 bits is exact modulo 2^64."""


def sent_tensor(block: ExpectedBlock, sent: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """What silos were sent of a block; None where it is no tensor of the model, or was sent in another form."""
    found = sent.get(block.name) if block.kind == "model" else None
    return (
        found
        if found is not None and (found.shape, found.dtype) == (block.shape, DTYPES[block.dtype])
        else None
    )


def changes_of(values: np.ndarray, base: np.ndarray | None) -> np.ndarray:
    """Values less what they were, in float64; of integers exactly, up to 2^53.

    :param base: what they were; None where that is not known, and counts as 0.
    """
    if base is None:
        return values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is refused as beyond its bound
        difference = np.asarray(values.astype(np.float64) - base.astype(np.float64))
    if values.dtype.kind == "f":
        return difference
    wrapped = values.astype(np.int64) - base.astype(np.int64)
    return np.where(np.abs(difference) < _EXACT_MAGNITUDE, wrapped, difference)


def changed_numbers(
    base: np.ndarray | None, weight: float, changes: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    """Weight times the base, and the changes, as numbers of a type; integers towards zero.

    :param base: None counts as 0.
    :param weight: 1 where numbers are integers.
    :param changes: in float64.
    """
    if base is None:
        return changes.astype(dtype)
    if dtype.kind == "f":
        before = weight * base.astype(np.float64)
        return np.where(changes == 0, before, before + changes).astype(dtype)  # -0 + 0 is another zero
    whole = np.floor(changes)
    found = base.astype(np.int64) + whole.astype(np.int64)  # modulo 2^64, as integers without a sign are too
    if dtype.kind != "u":
        found += (found < 0) & (whole != changes)
    return np.asarray(found).astype(dtype)
