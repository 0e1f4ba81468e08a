"""The one form in which every loader's data reach training, and the checks that give it.

Messages here do not name the dataset: `fedsilo.data.loaders.load` puts its name in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.data.schema import Schema, ValueRange
from fedsilo.errors import DataInvalid


@dataclass(frozen=True)
class Loaded:
    """What a loader found, before any check.

    :param classes: names of the classes by their number in `labels`; None where the data have none.
    :param ordered: whether that order is the data's own, see `number_classes`.
    """

    features: object
    labels: object
    classes: Sequence[str] | None = None
    ordered: bool = True


@dataclass(frozen=True)
class Arrays:
    """Samples and their classes.

    :param features: images (N, C, H, W) or vectors (N, F); uint8 as stored (0 to 255, training scales by
        1/255) or finite float32
    :param labels: class of every sample, shape (N,), int64
    :param schema: of the whole dataset that they are from, as the silo announces it
    """

    features: np.ndarray
    labels: np.ndarray
    schema: Schema = field(default_factory=Schema)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> Arrays:
        """The samples of these indices, in their order."""
        return Arrays(self.features[indices], self.labels[indices], self.schema)


def checked(features: object, labels: object, classes: int, input_shape: tuple[int, ...]) -> Arrays:
    """Raw arrays of a loader in the common form.

    :param features: (N, *input_shape), images also with channels last, or without channels where there is one
    :raises DataInvalid: anything else, naming the first offending item
    """
    x, y = _plain("features", features), _plain("labels", labels)
    if x.ndim == 0 or y.ndim != 1 or len(x) != len(y):
        raise DataInvalid(
            f"features of shape {x.shape} and labels of shape {y.shape} do not pair up;"
            " give one label per sample, labels in one dimension"
        )
    if not len(y):
        raise DataInvalid("there is not a single sample; give at least one")
    return Arrays(_checked_features(x, input_shape), _checked_labels(y, classes))


def image_schema(features: np.ndarray) -> Schema:
    """What is announced of checked features: channels and range of images, nothing of vectors.

    :param features: (N, C, H, W), or of another shape.
    """
    if features.ndim != 4:
        return Schema()
    return Schema(channels=features.shape[1], value_range=_value_range(features))


def _value_range(features: np.ndarray) -> ValueRange | None:
    """The round numbers between which all values lie; the extremes themselves would be an example's."""
    if features.dtype == np.uint8:
        return "0 to 1"  # which training makes of them
    least, most = float(features.min()), float(features.max())
    if least >= 0:
        return "0 to 1" if most <= 1 else "0 to 255" if most <= 255 else None
    return "-1 to 1" if least >= -1 and most <= 1 else None


def _plain(what: str, values: object) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (Exception, SystemExit) as error:  # an object's `__array__` may raise anything
        raise DataInvalid(f"{what} are not an array ({first_line(error)}); give a numeric array") from error
    if array.dtype.kind not in "iuf":
        raise DataInvalid(f"{what} have dtype {array.dtype}; give a numeric array")
    return array


def _checked_features(x: np.ndarray, input_shape: tuple[int, ...]) -> np.ndarray:
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataInvalid(f"features have dtype {x.dtype}; give uint8 (0 to 255) or float32")
    x = _channels_first(x, input_shape)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        x = np.ascontiguousarray(x, dtype=np.float32)
    finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    if not finite.all():
        item = int(np.argmin(finite))
        bad = x[item][~np.isfinite(x[item])][0]
        raise DataInvalid(f"item {item}: features contain {bad}; remove or mend the item")
    return x


def _channels_first(x: np.ndarray, input_shape: tuple[int, ...]) -> np.ndarray:
    if x.shape[1:] == input_shape:
        return x
    if len(input_shape) == 3:
        channels, height, width = input_shape
        if x.shape[1:] == (height, width, channels):
            return np.moveaxis(x, -1, 1)
        if channels == 1 and x.shape[1:] == (height, width):
            return x[:, np.newaxis]
    raise DataInvalid(
        f"items have shape {list(x.shape[1:])}, but data.inputShape of the job is {list(input_shape)};"
        " convert the data or correct the job"
    )


def _checked_labels(y: np.ndarray, classes: int) -> np.ndarray:
    if y.dtype.kind == "f":
        whole = np.isfinite(y) & (y == np.floor(y))
        if not whole.all():
            item = int(np.argmin(whole))
            raise DataInvalid(
                f"item {item}: label {y[item]} is not an integer; number classes from 0 to {classes - 1}"
            )
    within = (y >= 0) & (y < classes)
    if not within.all():
        item = int(np.argmin(within))
        raise DataInvalid(
            f"item {item}: label {y[item]} is not a class of the job (data.classes is {classes});"
            f" number classes from 0 to {classes - 1}"
        )
    return y.astype(np.int64)
