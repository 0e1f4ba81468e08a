"""From a silo's data to what it may tell of them: `fedsilo.readiness.announced` says in which form."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import DataInvalid
from fedsilo.readiness.announced import MAGNITUDES, MAX_MESSAGE, MAX_PLACES, AnnouncedFinding
from fedsilo.readiness.facts import Facts, SiloData, standardises


def findings_of(spec: FederatedJobSpec, data: SiloData) -> tuple[AnnouncedFinding, ...]:
    """Everything that a silo of these data can tell."""
    return tuple(_data_findings(spec, data, Facts.of(spec, data)))


def unreadable_findings(error: DataInvalid) -> tuple[AnnouncedFinding, ...]:
    """That the data cannot be read, and why."""
    text = "".join(letter if letter.isprintable() else " " for letter in error.redacted_text)
    return (AnnouncedFinding("Unreadable", message=text[:MAX_MESSAGE]),)


def _data_findings(spec: FederatedJobSpec, data: SiloData, facts: Facts) -> Iterator[AnnouncedFinding]:
    if facts.train < 2:
        yield AnnouncedFinding("NoTrainingExamples")
    if data.limits.records < data.limits.min_records:
        yield AnnouncedFinding("UpdateTooSmall")
    if data.limits.privacy is not None:
        yield AnnouncedFinding("PrivacyUnreachable")
    if facts.validation == 0 and data.only_silos_score:
        yield AnnouncedFinding("NoValidationExamples")
    # Whether a class is lacking or too small to be told of is one finding: the difference would be a count.
    classes = sorted([*facts.absent_classes(), *facts.small_classes(data.min_samples_per_class)])
    least = data.min_values_per_feature
    sparse = set(facts.sparse(least))
    named = {
        "ClassSmall": classes,
        "ValuesMissing": facts.incomplete(),
        "FeatureEmpty": sorted(sparse) if spec.data.preprocessing is not None else [],
        "FeatureConstant": [place for place in facts.constant() if place not in sparse],
    }
    yield from (_naming(code, places) for code, places in named.items() if places)
    if facts.unusual_range:
        yield AnnouncedFinding("RangeUnusual")
    if not standardises(spec) and facts.spread() is not None:
        yield AnnouncedFinding("FeatureUnscaled")
    magnitudes = facts.magnitudes(least)
    if any(power is not None for power in magnitudes):
        yield AnnouncedFinding(MAGNITUDES, magnitudes=magnitudes)
    if facts.copies:
        yield AnnouncedFinding("Duplicates", count=facts.copies)
    if facts.leaking:
        yield AnnouncedFinding("ValidationLeaks", count=facts.leaking)


def _naming(code: str, places: list[int]) -> AnnouncedFinding:
    return AnnouncedFinding(code, tuple(places[:MAX_PLACES]), len(places))
