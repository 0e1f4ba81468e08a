"""The specification with which a job began, and what its object shows otherwise since.

Admission rules refuse a change. Where they were away, the job goes on as its silos admitted it, and says so.
"""

from __future__ import annotations

from functools import lru_cache

from pydantic import ValidationError

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.digest import frozen_spec
from fedsilo.api.faults import ABSENT_VALUE, value_text
from fedsilo.api.job import FederatedJob
from fedsilo.api.spec_changes import SpecChange, spec_changes
from fedsilo.api.text import shortened_list
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.objects import CONFIG_MAP
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.aggregator import job_text_in

MAX_FIELDS = 5
"""Changed fields that the condition names."""


def original_job(seen: JobObservation) -> FederatedJob | None:
    """The job as its silos were given it at the start.

    None before the start, where the record of it is lost, and where only another version can read it.
    """
    record = seen.children.get(CONFIG_MAP)
    return None if record is None else _parse(job_text_in(record))


def changed_spec(shown: FederatedJob | None, original: FederatedJob) -> Diagnosis | None:
    """What a job shows otherwise than it began; None where it is the same.

    :param shown: as observed; None where that cannot be read.
    """
    if shown is None:
        text = "spec cannot be read any more"
    elif shown.spec == original.spec:
        return None
    else:
        found = spec_changes(frozen_spec(original), frozen_spec(shown))
        text = ", ".join(shortened_list([_sentence(one) for one in found], MAX_FIELDS, "other fields"))
    remedy = "Change it back, or make a new job with the other values."
    message = (
        f"The spec was changed after the start: {text}. The job goes on as its silos admitted it. {remedy}"
    )
    return Diagnosis(Reason.TRUST_BROKEN, message)


def _sentence(one: SpecChange) -> str:
    shown = "is gone" if one.after is ABSENT_VALUE else f"is {value_text(one.after)}"
    before = "nothing" if one.before is ABSENT_VALUE else value_text(one.before)
    return f"spec.{one.path} {shown} and was {before}"


@lru_cache(maxsize=1024)
def _parse(text: str) -> FederatedJob | None:
    """The job of a record, read once: a job is reconciled with every change of any of its agents."""
    try:
        return FederatedJob.model_validate_json(text)
    except ValidationError:
        return None
