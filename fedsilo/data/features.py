"""What features must be before they reach training, whether all at once or batch by batch."""

from __future__ import annotations

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.interface import first_place


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
    x: np.ndarray, input_shape: tuple[int, ...], items: np.ndarray | None = None, *, missing: bool = False
) -> np.ndarray:
    """Features in the common form: (N, *input_shape), contiguous, uint8 or float32; uint16 becomes float32 in [0, 1].

    :param x: images also with channels last, or without channels where there is one
    :param items: number of each item in the dataset, for errors; their position by default
    :param missing: whether NaN, a missing value, is admitted
    :raises DataInvalid: another shape or dtype, or a number that is not finite
    """
    if x.dtype not in (np.uint8, np.uint16) and x.dtype.kind != "f":
        raise DataInvalid(f"features have dtype {x.dtype}; give uint8 (0 to 255) or float32")
    x = _channels_first(x, input_shape)
    if x.dtype == np.uint16:
        return scaled_16_bits(x)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        x = np.ascontiguousarray(x, dtype=np.float32)
    bad = np.isinf(x) if missing else ~np.isfinite(x)
    if bad.any():
        item = int(np.argmax(bad.any(axis=tuple(range(1, x.ndim)))))
        value = x[item][bad[item]][0]
        number = item if items is None else items[item]
        impute = ", or set spec.data.preprocessing.impute" if np.isnan(value) else ""
        raise DataInvalid(f"item {number}: features contain {value}; remove or mend the item{impute}")
    return x


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
