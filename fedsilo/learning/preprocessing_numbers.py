"""The numbers of a job's preprocessing as JSON has them, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from fedsilo.errors import DataInvalid

NAMES: Final = ("fill", "mean", "scale")
"""Names of the numbers: what replaces missing values, what is taken off, and what is divided by."""


def to_document(numbers: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """The numbers as JSON values, without loss; `from_document` reads them back."""
    return {name: [float(value) for value in numbers[name]] for name in NAMES}


def from_document(document: Any, features: int) -> dict[str, np.ndarray]:
    """Read what `to_document` wrote.

    :raises DataInvalid: naming what is wrong with it.
    """
    if not isinstance(document, dict) or document.keys() != set(NAMES):
        raise DataInvalid(
            f"preprocessing: {str(document)[:80]!r} does not have {', '.join(NAMES)} and nothing else"
        )
    return {name: _checked_numbers(name, document[name], features) for name in NAMES}


def _checked_numbers(name: str, values: Any, features: int) -> np.ndarray:
    are_numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    array = np.array(values if are_numbers else [], np.float64)
    if len(array) != features or not np.isfinite(array).all() or (name == "scale" and (array <= 0).any()):
        what = "finite numbers above 0" if name == "scale" else "finite numbers"
        raise DataInvalid(f"preprocessing: {name}: {str(values)[:80]} is not a list of {features} {what}")
    return array
