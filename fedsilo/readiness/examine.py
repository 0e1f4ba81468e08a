"""What a silo's examples are like for a job: splits, classes, features, duplicates.

It is read where the data lie. Counts of classes are told as far as the silo's policy permits the payload kind
`class_counts`; other findings tell names and numbers of features, and of examples all together. What a silo tells the
aggregator is less: `fedsilo.readiness.announced`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import comma_separated
from fedsilo.data.schema import feature_names
from fedsilo.readiness.facts import Facts, SiloData, standardises
from fedsilo.readiness.finding import SEVERITY, ReadinessFinding, Severity

FEW_EXAMPLES = 4
"""Features or classes that a finding names; of more it tells the number."""


def examine(spec: FederatedJobSpec, data: SiloData, facts: Facts) -> list[ReadinessFinding]:
    """Everything that is worth saying about the silo's data."""
    return [
        *_splits(data, facts),
        *_classes(spec, data, facts),
        *_features(spec, data, facts),
        *_duplicates(data, facts),
    ]


def absent_classes(spec: FederatedJobSpec, labels: Sequence[np.ndarray]) -> Iterator[ReadinessFinding]:
    """A warning that names the classes of which no silo has an example; nothing where each class is in some silo.

    :param labels: of each silo.
    """
    have = np.zeros(spec.data.class_count, np.int64)
    for one in labels:
        have += np.bincount(one, minlength=len(have))
    lacking = [spec.data.class_label(label) for label in np.flatnonzero(have == 0).tolist()]
    if lacking:
        remedy = "invite a silo that has it, or leave it out of spec.data.classes"
        place = _named_items("class", lacking)
        yield _finding("ClassAbsent", "all silos", place, "no example", remedy, "warning")


def _finding(
    code: str, silo: str, place: str, value: str, remedy: str, severity: Severity | None = None
) -> ReadinessFinding:
    return ReadinessFinding(code, severity or SEVERITY[code], silo, place, value, remedy)


def _splits(data: SiloData, facts: Facts) -> Iterator[ReadinessFinding]:
    if facts.train < 2:
        place, value = "training examples", str(facts.train)
        yield _finding("NoTrainingExamples", data.silo, place, value, "give the silo more data")
    limits = data.limits
    if limits.records < limits.min_records:
        remedy = (
            f"give the silo more data, or lower policy.minSamplesPerUpdate, which is {limits.min_records}"
        )
        yield _finding("UpdateTooSmall", data.silo, "training examples", str(limits.records), remedy)
    if limits.privacy is not None:
        place, value, remedy = split_text(limits.privacy)
        yield _finding("PrivacyUnreachable", data.silo, place, value, remedy)
    if facts.validation == 0 and data.only_silos_score:
        remedy = "give the silo more data, raise spec.data.validationFraction, or name a spec.evaluation.testDataset"
        value = f"0 of {facts.train}"
        yield _finding("NoValidationExamples", data.silo, "validation examples", value, remedy)


def _classes(spec: FederatedJobSpec, data: SiloData, facts: Facts) -> Iterator[ReadinessFinding]:
    minimum, name = data.min_samples_per_class, spec.data.class_label
    if absent := facts.absent_classes():
        remedy = "nothing, if the silo really has none"
        yield _finding(
            "ClassAbsent", data.silo, _named_items("class", map(name, absent)), "no example", remedy
        )
    if small := facts.small_classes(minimum):
        assert facts.classes is not None
        numbers = [str(facts.classes[label]) for label in small]
        value = (
            f"{comma_separated(numbers, FEW_EXAMPLES)} to train on"
            if data.tells_counts
            else "too few to train on"
        )
        remedy = f"nothing, if per-class quantities may lack it; the minimum is {minimum}"
        yield _finding("ClassSmall", data.silo, _named_items("class", map(name, small)), value, remedy)


def _features(spec: FederatedJobSpec, data: SiloData, facts: Facts) -> Iterator[ReadinessFinding]:
    found, silo = facts.statistics, data.silo
    if found is None:
        return
    names = feature_names(data.arrays.schema, len(found.count))
    if missing := facts.incomplete():
        values = (found.missing + found.count)[missing].sum()
        value = f"{int(found.missing.sum())} of {int(values)} values"
        place = _named_items("feature", (names[place] for place in missing))
        yield _finding("ValuesMissing", silo, place, value, "nothing: the job imputes them")
    minimum = data.min_values_per_feature
    if spec.data.preprocessing is not None and (empty := facts.sparse(minimum)):
        remedy = f"leave it out in all silos, or lower the minimum, which is {minimum}"
        place = _named_items("feature", (names[place] for place in empty))
        yield _finding("FeatureEmpty", silo, place, "too few values", remedy)
    if constant := facts.constant():
        place = _named_items("feature", (names[place] for place in constant))
        yield _finding("FeatureConstant", silo, place, "one value", "leave it out if it is so in all silos")
    if facts.unusual_range:
        remedy = "scale the images to 0 to 1, or store them as uint8"
        yield _finding("RangeUnusual", silo, "values", "not 0 to 1, -1 to 1 or 0 to 255", remedy)
    if not standardises(spec) and (spread := facts.spread()) is not None:
        value = f"standard deviations from {spread[0]:.2g} to {spread[1]:.2g}"
        remedy = "set spec.data.preprocessing: {standardise: true}"
        yield _finding("FeatureUnscaled", silo, "features", value, remedy)


def _duplicates(data: SiloData, facts: Facts) -> Iterator[ReadinessFinding]:
    if facts.copies:
        value = f"{facts.copies} of {facts.examples} are copies"
        remedy = "remove the copies, if they are none on purpose"
        yield _finding("Duplicates", data.silo, "examples", value, remedy)
    if facts.leaking:
        value = f"{facts.leaking} of {facts.validation} are trained on too"
        yield _finding("ValidationLeaks", data.silo, "validation examples", value, "remove the copies")


def split_text(text: str) -> tuple[str, str, str]:
    """Place, value and remedy of an error's text."""
    place, _, rest = text.partition(": ")
    value, _, remedy = rest.partition("; ")
    return place, value, remedy


def _named_items(what: str, names: Iterator[str] | Sequence[str]) -> str:
    """A few by name, the others by number."""
    return f"{what} {comma_separated(list(names), FEW_EXAMPLES)}"
