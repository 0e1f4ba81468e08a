"""What a trainer announces before round 1, as far as the guard checks it: names and types, none of the data."""

from __future__ import annotations

from collections.abc import Iterable

from fedsilo.api.data import DataSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.comparison import compare, mismatch_text
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.errors import DataInvalid, PolicyRefused
from fedsilo.readiness.announced import AnnouncedFinding, FindingRules, announced_findings
from fedsilo.readiness.statement import readiness_body
from fedsilo.silo.reply_limits import min_samples_per_class
from fedsilo.silo.withholding import withholds_texts

__all__ = [
    "MAX_SCHEMA_BYTES",
    "AnnouncedFinding",
    "Schema",
    "announced_readiness",
    "announced_schema",
    "finding_rules",
    "readiness_body",
    "require_declared",
]


def announced_schema(value: object) -> Schema | None:
    """The schema as the trainer has written it; None where it announces none.

    :raises PolicyRefused: for anything but a schema.
    """
    try:
        return None if value is None else Schema.from_dict(value)
    except DataInvalid as error:
        raise PolicyRefused(f"signature.json: {error}") from error


def announced_readiness(value: object, data: DataSpec) -> tuple[AnnouncedFinding, ...]:
    """The findings as the trainer has written them.

    :raises PolicyRefused: for anything but findings.
    """
    try:
        return announced_findings(value, data)
    except DataInvalid as error:
        raise PolicyRefused(f"signature.json: {error}") from error


def finding_rules(spec: FederatedJobSpec, silos: Iterable[Silo]) -> FindingRules:
    """What may be told of a silo's data by all of these versions of its policy."""
    known = list(silos)
    minimum = max(min_samples_per_class(spec, silo) for silo in known)
    if any(withholds_texts(spec, silo) for silo in known):
        return FindingRules.codes_alone(minimum)
    kinds = set.intersection(*(set(silo.spec.policy.payload_kinds) for silo in known))
    return FindingRules.of(kinds, minimum)


def require_declared(data: DataSpec, schema: Schema | None) -> None:
    """Check that the trainer's labels are those of the job, where the job names its classes.

    :raises PolicyRefused: naming the difference.
    """
    if data.class_names is None or (schema is not None and schema.classes == data.class_names):
        return
    faults = mismatch_text(compare(data, {"the trainer": schema or Schema()}))
    raise PolicyRefused(faults or "the trainer announced other classes than the job's; nothing is sent")
