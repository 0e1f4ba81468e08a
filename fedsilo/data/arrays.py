"""The one form in which every loader's data reach training, and the checks that give it.

Messages here do not name the dataset: `fedsilo.data.loaders.load` puts its name in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsilo.data.features import FeatureRules, checked_features, checked_tokens, numeric_array, probed_rows
from fedsilo.data.schema import Schema, ValueRange
from fedsilo.data.sources import FeatureSource, LazyFeatures
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.classification import class_labels
from fedsilo.tasks.interface import LearningTask


@dataclass(frozen=True)
class LoadedData:
    """What a loader found, before any check.

    :param classes: names of the classes by their number in `labels`; None where the data have none.
    :param ordered: whether that order is the data's own, see `number_classes`.
    :param schema: what is known of a table's columns.
    :param persons: whose each example is; None where the data do not say.
    """

    features: object
    labels: object
    classes: Sequence[str] | None = None
    ordered: bool = True
    schema: Schema | None = None
    persons: object = None


def distinct_names(names: Sequence[str], what: str) -> list[str]:
    """The names as a list.

    :param what: they are, for errors
    :raises DataInvalid: when two are the same
    """
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise DataInvalid(
            f"{what}: {quoted_value(repr(twice))} is there twice; give each class a name of its own"
        )
    return list(names)


@dataclass(frozen=True)
class Arrays:
    """Samples and their targets.

    :param features: images (N, C, H, W) or vectors (N, F); uint8 as stored (0 to 255, training scales by
        1/255) or finite float32, float64 where that would lose what matters; those that stay in their files are read
        by batch; tokens in int64
    :param labels: class of every sample, shape (N,), int64; another target where the learning task has another
    :param schema: of the whole dataset that they are from, as the silo announces it
    :param persons: whose each sample is, (N,) texts; None where the data do not say. They stay in the silo
    """

    features: np.ndarray | LazyFeatures
    labels: np.ndarray
    schema: Schema = field(default_factory=Schema)
    persons: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def require_readable(self) -> None:
        """Check that features which stay in their files can all be read.

        :raises DataInvalid: naming dataset and item.
        """
        if isinstance(self.features, LazyFeatures):
            self.features.require_readable()

    def take(self, indices: np.ndarray) -> Arrays:
        """The samples of these indices, in their order."""
        whole = self.features
        features = whole.take(indices) if isinstance(whole, LazyFeatures) else whole[indices]
        persons = None if self.persons is None else self.persons[indices]
        return Arrays(features, self.labels[indices], self.schema, persons)


def checked_arrays(
    features: object,
    labels: object,
    task: LearningTask,
    classes: int | None = None,
    dataset: str = "",
    rules: FeatureRules | None = None,
) -> Arrays:
    """What a loader found in the common form; of a `FeatureSource` what its header says, and the rest when it is read.

    :param features: (N, *input_shape), images also with channels last, or without channels where there is one
    :param classes: how many the data have, where that is not what the job says
    :param dataset: name that errors of a later reading begin with
    :param rules: of the features; those of the task's job by default
    :raises DataInvalid: anything else, naming the first offending item
    """
    rules = FeatureRules.of(task.data) if rules is None else rules
    x = features if isinstance(features, FeatureSource) else numeric_array("features", features)
    y = numeric_array("labels", labels)
    if not x.shape or not y.shape or x.shape[0] != len(y) or (task.single_label and y.ndim != 1):
        wanted = "label per sample, labels in one dimension" if task.single_label else "target per sample"
        raise DataInvalid(
            f"features of shape {x.shape} and labels of shape {y.shape} do not pair up; give one {wanted}"
        )
    if not len(y):
        raise DataInvalid("there is not a single sample; give at least one")
    if not isinstance(x, np.ndarray) and task.vocabulary is not None:
        x = x.read(np.arange(x.shape[0]))  # tokens are few bytes
    shape = tuple(task.data.input_shape)
    if isinstance(x, np.ndarray):
        x, y = task.pairs(x, y)
        if task.vocabulary is not None:
            return Arrays(checked_tokens(x, shape, task.vocabulary), _checked_targets(y, task, classes))
        found = checked_features(x, shape, missing=rules.missing, double=rules.keep_double(x))
        return Arrays(found, _checked_targets(y, task, classes))
    checked_features(np.empty((0, *x.shape[1:]), x.dtype), shape)
    double = rules.rounding is not None and x.dtype == np.float64 and rules.keep_double(_first_items(x))
    features = LazyFeatures(x, shape, dataset, missing=rules.missing, double=double)
    return Arrays(features, _checked_targets(y, task, classes))


def _first_items(source: FeatureSource) -> np.ndarray:
    return source.read(np.arange(min(source.shape[0], probed_rows(source.shape))))


def _checked_targets(y: np.ndarray, task: LearningTask, classes: int | None) -> np.ndarray:
    return task.targets(y) if classes is None else class_labels(y, classes)


def image_schema(features: np.ndarray | LazyFeatures) -> Schema:
    """What is announced of checked features: channels and range of images, nothing of vectors.

    The range of decimal numbers that stay in their files is not known.

    :param features: (N, C, H, W), or of another shape.
    """
    if features.ndim != 4:
        return Schema()
    return Schema(channels=features.shape[1], value_range=_range_of(features))


def _range_of(features: np.ndarray | LazyFeatures) -> ValueRange | None:
    """The round numbers between which all values lie; the extremes themselves would be an example's."""
    if features.dtype == np.uint8:
        return "0 to 1"  # which training makes of them
    if isinstance(features, LazyFeatures):
        return None
    return value_range(float(features.min()), float(features.max()))


def value_range(least: float, most: float) -> ValueRange | None:
    """Round numbers between which values of images usually lie; None where these lie elsewhere."""
    if least >= 0:
        return "0 to 1" if most <= 1 else "0 to 255" if most <= 255 else None
    return "-1 to 1" if least >= -1 and most <= 1 else None
