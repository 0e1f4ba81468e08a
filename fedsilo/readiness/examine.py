"""What a silo's examples are like for a job: splits, classes, features, duplicates.

Counts of classes are told as far as the silo's policy permits the payload kind `class_counts`; other findings tell
names and numbers of features, and of examples all together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import comma_separated
from fedsilo.data.arrays import Arrays
from fedsilo.data.schema import Schema
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.readiness.finding import ReadinessFinding, Severity

PIECE_NUMBERS = 1 << 20
"""Numbers that are in memory in double precision at a time."""

FEW = 4
"""Features or classes that a finding names; of more it tells the number."""

SPREAD = 1000.0
"""Ratio of the largest to the smallest standard deviation from which features count as of very different size."""


@dataclass(frozen=True)
class SiloData:
    """One silo's data for a job.

    :param train: places of the examples that it trains on.
    :param validation: of those that it sets aside.
    :param min_samples_per_class: of job and silo together; likewise `min_values_per_feature`.
    :param tells_counts: whether the silo's policy permits counts of its classes.
    """

    silo: str
    arrays: Arrays
    train: np.ndarray
    validation: np.ndarray
    min_samples_per_class: int
    min_values_per_feature: int
    tells_counts: bool


def examine(spec: FederatedJobSpec, data: SiloData) -> list[ReadinessFinding]:
    """Everything that is worth saying about the silo's data."""
    statistics, digests = _pass(spec, data)
    found = [*_splits(spec, data)]
    if spec.task is None or spec.task.name == "classification":
        found += _classes(spec, data)
    if spec.task is None or spec.task.name != "language":
        found += _features(spec, data, statistics)
    return [*found, *_duplicates(data, digests)]


def absent_classes(spec: FederatedJobSpec, labels: Sequence[np.ndarray]) -> Iterator[ReadinessFinding]:
    """Classes that none of the silos has.

    :param labels: of each silo.
    """
    have = np.zeros(spec.data.class_count, np.int64)
    for one in labels:
        have += np.bincount(one, minlength=len(have))
    lacking = [_class_name(spec, label) for label in np.flatnonzero(have == 0).tolist()]
    if lacking:
        remedy = "invite a silo that has it, or leave it out of spec.data.classes"
        yield _finding("ClassAbsent", "warning", "all silos", _named("class", lacking), "no example", remedy)


def _finding(
    code: str, severity: Severity, silo: str, place: str, value: str, remedy: str
) -> ReadinessFinding:
    return ReadinessFinding(code, severity, silo, place, value, remedy)


def _pass(spec: FederatedJobSpec, data: SiloData) -> tuple[FeatureStatistics, list[bytes]]:
    """Statistics of all features, and a digest of each example, in one pass over them."""
    shape = spec.data.input_shape
    statistics, digests = FeatureStatistics.none(shape[0]), list[bytes]()
    rows = max(PIECE_NUMBERS // prod(shape), 1)
    for start in range(0, len(data.arrays), rows):
        piece = np.ascontiguousarray(data.arrays.features[start : start + rows])
        digests += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in piece]
        fed = piece / 255 if piece.dtype == np.uint8 else piece
        statistics = statistics.merge(FeatureStatistics.of(fed))
    return statistics, digests


def _splits(spec: FederatedJobSpec, data: SiloData) -> Iterator[ReadinessFinding]:
    train, validation = len(data.train), len(data.validation)
    if train < 2:
        place, value = "training examples", str(train)
        yield _finding("NoTrainingExamples", "error", data.silo, place, value, "give the silo more data")
    if validation == 0 and spec.evaluation.test_dataset is None:
        remedy = "give the silo more data, raise spec.data.validationFraction, or name a spec.evaluation.testDataset"
        value = f"0 of {train}"
        yield _finding("NoValidationExamples", "warning", data.silo, "validation examples", value, remedy)


def _classes(spec: FederatedJobSpec, data: SiloData) -> Iterator[ReadinessFinding]:
    counts = np.bincount(data.arrays.labels[data.train], minlength=spec.data.class_count)
    absent = [_class_name(spec, label) for label in np.flatnonzero(counts == 0).tolist()]
    small = np.flatnonzero((counts > 0) & (counts < data.min_samples_per_class))
    if absent:
        remedy = "nothing, if the silo really has none"
        yield _finding("ClassAbsent", "note", data.silo, _named("class", absent), "no example", remedy)
    if len(small):
        numbers = [str(counts[label]) for label in small]
        value = f"{comma_separated(numbers, FEW)} to train on" if data.tells_counts else "too few to train on"
        place = _named("class", [_class_name(spec, label) for label in small.tolist()])
        remedy = f"nothing, if per-class quantities may lack it; the minimum is {data.min_samples_per_class}"
        yield _finding("ClassSmall", "note", data.silo, place, value, remedy)


def _features(spec: FederatedJobSpec, data: SiloData, found: FeatureStatistics) -> Iterator[ReadinessFinding]:
    names, silo = feature_names(data.arrays.schema, len(found.count)), data.silo
    missing = np.flatnonzero(found.missing > 0)
    if len(missing):
        values = (found.missing + found.count)[missing].sum()
        value = f"{int(found.missing.sum())} of {int(values)} values"
        place = _named("feature", [names[place] for place in missing])
        yield _finding("ValuesMissing", "note", silo, place, value, "nothing: the job imputes them")
    if spec.data.preprocessing is not None:
        minimum = data.min_values_per_feature
        empty = [names[place] for place in np.flatnonzero(found.count < minimum)]
        if empty:
            remedy = f"leave it out in all silos, or lower the minimum, which is {minimum}"
            yield _finding(
                "FeatureEmpty", "warning", silo, _named("feature", empty), "too few values", remedy
            )
    constant = [names[place] for place in np.flatnonzero((found.m2 == 0) & (found.count > 1))]
    if constant:
        remedy = "leave it out if it is so in all silos"
        yield _finding("FeatureConstant", "warning", silo, _named("feature", constant), "one value", remedy)
    if data.arrays.features.ndim == 4 and data.arrays.schema.value_range is None:
        remedy = "scale the images to 0 to 1, or store them as uint8"
        yield _finding("RangeUnusual", "warning", silo, "values", "not 0 to 1, -1 to 1 or 0 to 255", remedy)
    spread = np.sqrt(found.variance[found.m2 > 0])
    scaled = spec.data.preprocessing is not None and spec.data.preprocessing.standardise
    if not scaled and len(spread) > 1 and spread.max() > SPREAD * spread.min():
        value = f"standard deviations from {spread.min():.2g} to {spread.max():.2g}"
        remedy = "set spec.data.preprocessing: {standardise: true}"
        yield _finding("FeatureUnscaled", "warning", silo, "features", value, remedy)


def _duplicates(data: SiloData, digests: Sequence[bytes]) -> Iterator[ReadinessFinding]:
    more = len(digests) - len(set(digests))
    if more:
        value, remedy = (
            f"{more} of {len(digests)} are copies",
            "remove the copies, if they are none on purpose",
        )
        yield _finding("Duplicates", "warning", data.silo, "examples", value, remedy)
    trained = {digests[place] for place in data.train}
    leaking = sum(digests[place] in trained for place in data.validation)
    if leaking:
        value = f"{leaking} of {len(data.validation)} are trained on too"
        yield _finding(
            "ValidationLeaks", "warning", data.silo, "validation examples", value, "remove the copies"
        )


def feature_names(schema: Schema, features: int) -> list[str]:
    """Names of the columns as features, or else their numbers."""
    names: list[str] = []
    for column in schema.columns or ():
        categories = column.categories
        names += [column.name] if categories is None else [f"{column.name}={name}" for name in categories]
    return names if len(names) == features else [str(place) for place in range(features)]


def _class_name(spec: FederatedJobSpec, label: int) -> str:
    names = spec.data.class_names
    return str(label) if names is None else names[label]


def _named(what: str, names: Sequence[str]) -> str:
    """A few by name, the others by number."""
    return f"{what} {comma_separated(names, FEW)}"
