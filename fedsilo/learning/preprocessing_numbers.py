"""The numbers of a job's preprocessing as JSON has them, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from fedsilo.errors import DataInvalid

NAMES: Final = ("fill", "mean", "scale")
"""Names of the features' numbers: what replaces missing values, what is taken off, and what is divided by."""

TARGET_MEAN: Final = "targetMean"
TARGET_SCALE: Final = "targetScale"
"""Name of what targets are divided by, once `TARGET_MEAN` is taken off, where the learning task is of numbers."""


def to_document(numbers: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """The numbers as JSON values, without loss; `from_document` reads them back."""
    names = (*NAMES, *(name for name in (TARGET_MEAN, TARGET_SCALE) if name in numbers))
    return {name: [float(value) for value in numbers[name]] for name in names}


def from_document(document: Any, features: int, outputs: int = 0) -> dict[str, np.ndarray]:
    """Read what `to_document` wrote.

    :param outputs: numbers that the model predicts, where their targets may have been prepared.
    :raises DataInvalid: naming what is wrong with it.
    """
    sizes = dict.fromkeys(NAMES, features)
    if outputs and isinstance(document, dict) and TARGET_MEAN in document:
        sizes |= dict.fromkeys((TARGET_MEAN, TARGET_SCALE), outputs)
    if not isinstance(document, dict) or document.keys() != sizes.keys():
        raise DataInvalid(
            f"preprocessing: {str(document)[:80]!r} does not have {', '.join(sizes)} and nothing else"
        )
    return {name: _checked_numbers(name, document[name], size) for name, size in sizes.items()}


def _checked_numbers(name: str, values: Any, size: int) -> np.ndarray:
    are_numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    array, divides = np.array(values if are_numbers else [], np.float64), name in ("scale", TARGET_SCALE)
    if len(array) != size or not np.isfinite(array).all() or (divides and (array <= 0).any()):
        what = "finite numbers above 0" if divides else "finite numbers"
        raise DataInvalid(f"preprocessing: {name}: {str(values)[:80]} is not a list of {size} {what}")
    return array
