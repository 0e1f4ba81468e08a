"""What features must be before they reach training, whether all at once or batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from fedsilo.api.data import DataSpec
from fedsilo.api.text import first_line
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.interface import first_place

PROBED_NUMBERS = 1 << 20
"""Numbers, the first of a dataset, by which it is decided in which type the features are kept."""

TOLERATED_ROUNDING = 1e-5
"""Part of a feature's standard deviation that float32 may change a number by, where a job standardises."""


@dataclass(frozen=True)
class FeatureRules:
    """What a job says of its features beyond their shape.

    :param missing: whether NaN, a missing value, is admitted.
    :param rounding: part of its standard deviation that a feature's numbers may be changed by when they become
        float32; features that would lose more stay in float64. None: all become float32.
    """

    missing: bool = False
    rounding: float | None = None

    @classmethod
    def of(cls, data: DataSpec, *, exact: bool = False) -> FeatureRules:
        """The rules of a job: one that standardises takes means off before it rounds.

        :param exact: whether every number counts as it is written, as in statistics.
        """
        standardises = data.preprocessing is not None and data.preprocessing.standardise
        rounding = 0.0 if exact else TOLERATED_ROUNDING if standardises else None
        return cls(data.imputes, rounding)

    def keep_double(self, x: np.ndarray) -> bool:
        """Whether these features, (N, F, ...), stay in float64: decided by the first of them, stored or in memory."""
        if self.rounding is None or x.dtype.kind != "f" or x.dtype.itemsize < np.dtype(np.float64).itemsize:
            return False
        part = x[: probed_rows(x.shape)]
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.abs(part - part.astype(np.float32)) > 0
            if not rounded.any():
                return False
            lost = np.where(rounded, np.abs(part - part.astype(np.float32)), 0.0)
            deviation = np.sqrt(FeatureStatistics.of(np.where(np.isinf(part), np.nan, part)).variance)
        most = lost.max(axis=(0, *range(2, lost.ndim)))
        return bool((most > self.rounding * deviation).any())


def probed_rows(shape: tuple[int, ...]) -> int:
    """Items of such features, (N, ...), by which the type of all is decided."""
    return max(PROBED_NUMBERS // max(prod(shape[1:]), 1), 1)


def numeric_array(what: str, values: object) -> np.ndarray:
    """A numeric array of whatever a loader gave.

    :param what: features or labels, for errors
    :raises DataInvalid: it is not numeric
    """
    try:
        array = np.asarray(values)
    except (Exception, SystemExit) as error:  # an object's `__array__` may raise anything
        raise DataInvalid(
            f"{what} are not an array ({quoted_value(first_line(error))}); give a numeric array"
        ) from error
    if array.dtype.kind not in "iuf":
        raise DataInvalid(f"{what} have dtype {array.dtype}; give a numeric array")
    return array


def checked_features(
    x: np.ndarray,
    input_shape: tuple[int, ...],
    items: np.ndarray | None = None,
    *,
    missing: bool = False,
    double: bool = False,
) -> np.ndarray:
    """Features in the common form: (N, *input_shape), contiguous, uint8 or float32; uint16 becomes float32 in [0, 1].

    :param x: images also with channels last, or without channels where there is one
    :param items: number of each item in the dataset, for errors; their position by default
    :param missing: whether NaN, a missing value, is admitted
    :param double: whether other numbers become float64 in place of float32
    :raises DataInvalid: another shape or dtype, or a number that is not finite as float32
    """
    if x.dtype not in (np.uint8, np.uint16) and x.dtype.kind != "f":
        raise DataInvalid(f"features have dtype {x.dtype}; give uint8 (0 to 255) or float32")
    x = _channels_first(x, input_shape)
    if x.dtype == np.uint16:
        return scaled_16_bits(x)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        single = np.ascontiguousarray(x, dtype=np.float32)
    bad = np.isinf(single) if missing else ~np.isfinite(single)
    if bad.any():
        item = int(np.argmax(bad.any(axis=tuple(range(1, x.ndim)))))
        value = single[item][bad[item]][0]
        number = item if items is None else items[item]
        impute = ", or set spec.data.preprocessing.impute" if np.isnan(value) else ""
        raise DataInvalid(f"item {number}: features contain {value}; remove or mend the item{impute}")
    return np.ascontiguousarray(x, dtype=np.float64) if double else single


def scaled_16_bits(x: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 65535 as float32 from 0 to 1."""
    return np.ascontiguousarray(x, dtype=np.float32) / np.float32(65535)


def _channels_first(x: np.ndarray, input_shape: tuple[int, ...]) -> np.ndarray:
    if x.shape[1:] == input_shape:
        return x
    if len(input_shape) >= 3:
        channels, *sides = input_shape
        if x.shape[1:] == (*sides, channels):
            return np.moveaxis(x, -1, 1)
        if channels == 1 and x.shape[1:] == tuple(sides):
            return x[:, np.newaxis]
    raise DataInvalid(
        f"items have shape {list(x.shape[1:])}, but data.inputShape of the job is {list(input_shape)};"
        " convert the data or correct the job"
    )


def checked_tokens(x: np.ndarray, input_shape: tuple[int, ...], vocabulary: int) -> np.ndarray:
    """Tokens in the common form: (N, length), int64.

    :raises DataInvalid: another shape or dtype, or a number that is no token
    """
    if x.dtype.kind == "f":
        raise DataInvalid(f"tokens have dtype {x.dtype}; give integers")
    if x.shape[1:] != input_shape:
        raise DataInvalid(
            f"sequences have shape {list(x.shape[1:])}, but data.inputShape of the job is {list(input_shape)};"
            " cut or pad them, or correct the job"
        )
    outside = (x < 0) | (x >= vocabulary)
    if outside.any():
        item, place = first_place(outside)
        raise DataInvalid(
            f"item {item}: token {quoted_value(x[item, place])} at {place} is none of the {vocabulary} of"
            f" spec.task.config.vocabulary; number tokens from 0 to {vocabulary - 1}"
        )
    return np.ascontiguousarray(x, dtype=np.int64)
