"""What a silo tells of its data before round 1: codes, numbers of classes and features, counts; no text of its own.

A finding that travels holds nothing that a trainer could choose freely: its code is one of a list, each once, and what
it concerns are places in lists that the aggregator has anyway, the job's classes and the features of the announced
schema. The sentence that people read is made from that at the aggregator. Orders of magnitude are no finding of one
silo: differences between silos are, once all have told theirs. The one exception is why a dataset cannot be read: the
text that leaves as the failure of the silo's first task in every job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fedsilo.api.data import DataSpec
from fedsilo.api.text import count_text, first_items
from fedsilo.data.schema import Schema, feature_names
from fedsilo.errors import DataInvalid
from fedsilo.readiness.finding import SEVERITY, ReadinessFinding
from fedsilo.readiness.units import LARGEST_MAGNITUDE, MAX_MAGNITUDES, Magnitudes

MAX_PLACES: Final = 4
"""Classes or features that a finding names; of more it tells the number."""

MAX_COUNT: Final = 1 << 53

MAX_MESSAGE: Final = 1000
"""Characters of the reason for which a dataset cannot be read."""

MAGNITUDES: Final = "FeatureMagnitudes"
"""Code of what a silo tells for units to be compared."""

CLASSES, FEATURES, EXAMPLES, DATASET = "class", "feature", "example", "dataset"

SUBJECT: Final[Mapping[str, str]] = {
    "Unreadable": DATASET,
    "NoTrainingExamples": EXAMPLES,
    "UpdateTooSmall": EXAMPLES,
    "PrivacyUnreachable": EXAMPLES,
    "NoValidationExamples": EXAMPLES,
    "ClassSmall": CLASSES,
    "ValuesMissing": FEATURES,
    "FeatureEmpty": FEATURES,
    "FeatureConstant": FEATURES,
    MAGNITUDES: FEATURES,
    "FeatureUnscaled": DATASET,
    "RangeUnusual": DATASET,
    "Duplicates": EXAMPLES,
    "ValidationLeaks": EXAMPLES,
}
"""Codes that a silo may tell -> what they are about. Differences of names the aggregator sees itself."""

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "Unreadable": ("cannot be read", "mend the dataset; the silo's trainer has written where"),
    "NoTrainingExamples": ("fewer than two", "give the silo more data"),
    "UpdateTooSmall": (
        "fewer than the silo's policy.minSamplesPerUpdate",
        "give the silo more data, or ask the institution for fewer",
    ),
    "PrivacyUnreachable": (
        "too few for a batch, or too many for delta or the steps that are counted",
        "change spec.training.batchSize or spec.privacy.differentialPrivacy, or the silo's data",
    ),
    "NoValidationExamples": (
        "none",
        "give the silo more data, raise spec.data.validationFraction, or name a spec.evaluation.testDataset",
    ),
    "ClassSmall": (
        "fewer examples than the minimum of job and silo, or none",
        "nothing, if per-class quantities may lack it",
    ),
    "ValuesMissing": ("values are missing", "nothing: the job imputes them"),
    "FeatureEmpty": ("too few values", "leave it out in all silos, or lower the minimum of job and silo"),
    "FeatureConstant": ("one value", "leave it out if it is so in all silos"),
    "FeatureUnscaled": (
        "standard deviations of very different size",
        "set spec.data.preprocessing: {standardise: true}",
    ),
    "RangeUnusual": ("not 0 to 1, -1 to 1 or 0 to 255", "scale the images to 0 to 1, or store them as uint8"),
    "Duplicates": ("copies of others", "remove the copies, if they are none on purpose"),
    "ValidationLeaks": ("trained on too", "remove the copies"),
}
"""Code -> what is said of the place, and the remedy."""

_NOUNS: Final[Mapping[str, str]] = {
    "NoTrainingExamples": "training examples",
    "UpdateTooSmall": "training examples",
    "PrivacyUnreachable": "training examples",
    "NoValidationExamples": "validation examples",
    "FeatureUnscaled": "features",
    "RangeUnusual": "values",
    "Duplicates": "examples",
    "ValidationLeaks": "validation examples",
    "Unreadable": "dataset",
}


@dataclass(frozen=True)
class AnnouncedFinding:
    """One finding as it travels.

    :param places: numbers of the first classes or features that it is about, ascending.
    :param count: of classes, features or examples that it is about; None where that is not told.
    :param message: why the dataset cannot be read.
    :param magnitudes: of the features, of `MAGNITUDES` alone.
    """

    code: str
    places: tuple[int, ...] = ()
    count: int | None = None
    message: str | None = None
    magnitudes: Magnitudes = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is not told."""
        found: dict[str, Any] = {"code": self.code}
        found |= {"places": list(self.places)} if self.places else {}
        found |= {} if self.count is None else {"count": self.count}
        found |= {"magnitudes": list(self.magnitudes)} if self.magnitudes else {}
        return found if self.message is None else found | {"message": self.message}


@dataclass(frozen=True)
class FindingRules:
    """What a silo's policy lets a finding tell.

    :param classes: whether which classes are small may be told, and how many examples are affected: `class_counts`.
    :param features: whether features may be named: `feature_statistics`.
    :param minimum: examples below which no number of them is told.
    :param texts: whether it may be told why a dataset cannot be read.
    """

    classes: bool
    features: bool
    minimum: int
    texts: bool = True

    @classmethod
    def of(cls, kinds: Collection[str], minimum: int) -> FindingRules:
        """The rules of a policy that permits these payload kinds."""
        return cls("class_counts" in kinds, "feature_statistics" in kinds, minimum)

    @classmethod
    def codes_alone(cls, minimum: int) -> FindingRules:
        """The rules where nothing may leave that a trainer can choose but codes."""
        return cls(False, False, minimum, False)

    def permitted_findings(self, findings: Sequence[AnnouncedFinding]) -> tuple[AnnouncedFinding, ...]:
        """What may leave of them."""
        return tuple(told for finding in findings if (told := self._permitted_finding(finding)) is not None)

    def _permitted_finding(self, finding: AnnouncedFinding) -> AnnouncedFinding | None:
        subject = SUBJECT[finding.code]
        if subject == CLASSES:
            return finding if self.classes else None
        if finding.code == MAGNITUDES and not self.features:
            return None
        if subject == FEATURES and not self.features:
            return replace(finding, places=(), count=None)
        if subject == DATASET and not self.texts:
            return AnnouncedFinding(finding.code)
        small = finding.count is not None and finding.count < self.minimum
        if subject == EXAMPLES and (small or not self.classes):
            return replace(finding, count=None)
        return finding


def announced_findings(value: object, data: DataSpec) -> tuple[AnnouncedFinding, ...]:
    """Findings as `to_dict` has written them, and nothing else.

    :raises DataInvalid: naming the field.
    """
    if not isinstance(value, list) or len(value) > len(SUBJECT):
        raise _invalid_value_error("findings", value, f"a list of at most {len(SUBJECT)}")
    found = tuple(_finding(f"findings[{place}]", one, data) for place, one in enumerate(value))
    if len({finding.code for finding in found}) < len(found):
        raise _invalid_value_error(
            "findings", [finding.code for finding in found], "a list of codes, each once"
        )
    return found


def _finding(what: str, value: object, data: DataSpec) -> AnnouncedFinding:
    names = ("code", "places", "count", "message", "magnitudes")
    if not isinstance(value, dict) or not {"code"} <= value.keys() <= set(names):
        raise _invalid_value_error(what, value, f"an object with code, and perhaps {', '.join(names[1:])}")
    code, places, count, message, magnitudes = (value.get(name) for name in names)
    if not isinstance(code, str) or code not in SUBJECT:
        raise _invalid_value_error(f"{what}: code", code, f"one of {', '.join(SUBJECT)}")
    subject = SUBJECT[code]
    if places is not None:
        _require_places(f"{what}: places", places, _things(subject, data))
    if count is not None and not (type(count) is int and 0 <= count <= _largest_count(subject, data)):
        raise _invalid_value_error(
            f"{what}: count", count, f"an integer from 0 to {_largest_count(subject, data)}"
        )
    if message is not None and (
        code != "Unreadable"
        or not isinstance(message, str)
        or len(message) > MAX_MESSAGE
        or not message.isprintable()
    ):
        raise _invalid_value_error(
            f"{what}: message", message, f"one line of {MAX_MESSAGE} characters, of Unreadable alone"
        )
    if (code == MAGNITUDES) != (magnitudes is not None):
        raise _invalid_value_error(f"{what}: magnitudes", magnitudes, f"what {MAGNITUDES} alone has")
    if magnitudes is not None:
        _require_magnitudes(f"{what}: magnitudes", magnitudes, min(_things(FEATURES, data), MAX_MAGNITUDES))
    return AnnouncedFinding(code, tuple(places or ()), count, message, tuple(magnitudes or ()))


def _require_magnitudes(what: str, magnitudes: object, features: int) -> None:
    if not isinstance(magnitudes, list) or not 1 <= len(magnitudes) <= features:
        raise _invalid_value_error(what, magnitudes, f"a list of 1 to {features} numbers")
    for power in magnitudes:
        if power is not None and not (type(power) is int and abs(power) <= LARGEST_MAGNITUDE):
            raise _invalid_value_error(
                what, power, f"an integer from -{LARGEST_MAGNITUDE} to {LARGEST_MAGNITUDE}, or null"
            )


def _require_places(what: str, places: object, things: int) -> None:
    if not isinstance(places, list) or len(places) > MAX_PLACES:
        raise _invalid_value_error(what, places, f"a list of at most {MAX_PLACES} numbers")
    whole = all(type(place) is int and 0 <= place < things for place in places)
    if not whole or sorted(set(places)) != places:
        raise _invalid_value_error(
            what, places, f"ascending numbers from 0 to {things - 1}" if things else "empty"
        )


def _things(subject: str, data: DataSpec) -> int:
    """How many there are of what a finding can name."""
    return {CLASSES: data.class_count, FEATURES: data.input_shape[0]}.get(subject, 0)


def _largest_count(subject: str, data: DataSpec) -> int:
    """Largest count that a finding of this subject can state."""
    return {EXAMPLES: MAX_COUNT, DATASET: 0}.get(subject, _things(subject, data))


def describe_finding(
    finding: AnnouncedFinding, silo: str, data: DataSpec, schema: Schema | None
) -> ReadinessFinding:
    """A finding in words.

    :param schema: that the silo announced.
    """
    value, remedy = TEXTS[finding.code]
    subject = SUBJECT[finding.code]
    if finding.message is not None:
        value, _, own = finding.message.partition("; ")
        remedy = own or remedy
    if subject == EXAMPLES and finding.count:
        value = f"{finding.count} {value}"
    place = _NOUNS.get(finding.code) or _place(finding, subject, data, schema or Schema())
    return ReadinessFinding(finding.code, SEVERITY[finding.code], silo, place, value, remedy)


def without_own_words(finding: ReadinessFinding) -> ReadinessFinding:
    """What other silos are told of it: why a dataset cannot be read may quote a value of it."""
    if finding.code != "Unreadable":
        return finding
    value, remedy = TEXTS[finding.code]
    return replace(finding, value=value, remedy=remedy)


def _place(finding: AnnouncedFinding, subject: str, data: DataSpec, schema: Schema) -> str:
    if not finding.places:
        if not finding.count:
            return {CLASSES: "some classes", FEATURES: "some features"}[subject]
        return count_text(finding.count, "feature") if subject == FEATURES else f"{finding.count} classes"
    known = feature_names(schema, data.input_shape[0]) if subject == FEATURES else None
    names = [data.class_label(place) if known is None else known[place] for place in finding.places]
    all_ = max(finding.count or 0, len(names))
    return f"{subject} {', '.join(first_items([*names, *[''] * (all_ - len(names))], len(names)))}"


def _invalid_value_error(what: str, value: object, wanted: str) -> DataInvalid:
    return DataInvalid(f"{what}: {str(value)[:80]!r} is not {wanted}; send that")
