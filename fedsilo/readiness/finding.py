"""What a readiness check says: one finding for each thing that a person should know or mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning", "note"]
"""How grave a finding is. error: the job cannot run so; warning: it can, and the model will suffer;
note: worth knowing."""

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")

SEVERITY: Final[Mapping[str, Severity]] = {
    "Unreadable": "error",
    "SchemaDiffers": "error",
    "NoTrainingExamples": "error",
    "UpdateTooSmall": "error",
    "PrivacyUnreachable": "error",
    "PolicyRefuses": "error",
    "NoValidationExamples": "warning",
    "ClassAbsent": "note",
    "ClassSmall": "note",
    "ValuesMissing": "note",
    "FeatureEmpty": "warning",
    "FeatureConstant": "warning",
    "FeatureUnscaled": "warning",
    "UnitsDiffer": "warning",
    "RangeUnusual": "warning",
    "Duplicates": "warning",
    "ValidationLeaks": "warning",
}
"""How grave each code is in one silo; a class that no silo has is a warning, and so is a policy that refuses where
enough other silos are left for a round."""

CODES: Final = {
    "Unreadable": "the dataset cannot be read, or is not what the job says",
    "SchemaDiffers": "names or types are not those of the job or of the other silos",
    "NoTrainingExamples": "too few examples are left to train on",
    "UpdateTooSmall": "fewer examples to train on than the silo's policy asks of a model that leaves it",
    "PrivacyUnreachable": "the job's differential privacy cannot be had with so many examples to train on",
    "PolicyRefuses": "the silo's policy refuses the job, whatever its data are",
    "NoValidationExamples": "no example is left to score the model on, and nobody else scores it",
    "ClassAbsent": "a class of the job that the silo, or none of the silos, has",
    "ClassSmall": "a class with fewer examples than the minimum of job and silo",
    "ValuesMissing": "values that are missing, which the job imputes",
    "FeatureEmpty": "a feature without enough values for the statistics that the job needs",
    "FeatureConstant": "a feature that has one value in all examples of the silo",
    "UnitsDiffer": "a feature whose numbers are of another order of magnitude in another silo",
    "FeatureUnscaled": "features of very different size, and the job does not standardise them",
    "RangeUnusual": "an image's values lie in none of the usual ranges",
    "Duplicates": "examples that are there more than once",
    "ValidationLeaks": "examples on which the model is trained and scored",
}
"""Every code and its meaning."""


@dataclass(frozen=True)
class ReadinessFinding:
    """One finding about the data of a job's silos, in words.

    :param code: one of `CODES`.
    :param silo: whose data it is about, or `aggregator`, or `all silos`.
    :param place: where in the data, such as `class 'plane'` or `feature age`.
    :param value: what was found there.
    """

    code: str
    severity: Severity
    silo: str
    place: str
    value: str
    remedy: str


def ordered_findings(findings: Sequence[ReadinessFinding]) -> list[ReadinessFinding]:
    """The gravest first, otherwise in the order given."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
