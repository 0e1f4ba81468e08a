"""What blocks a job before its start, other than the decisions of its silos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedsilo.api.conditions import ConditionType
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import quorum_findings
from fedsilo.api.observed import condition
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.participants import public_key
from fedsilo_operator.messages import joined
from fedsilo_operator.objects import JOB_UID, SILO_AGENT, Object, Ref, ref_of, uid_of
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.rejections import diagnosis_of
from fedsilo_operator.workloads.aggregator import claim_ref


def blocker(seen: JobObservation, job: FederatedJob, named: Sequence[Ref]) -> Diagnosis | None:
    """Why the job cannot start, whatever its silos decide; None when nothing but their decision is missing.

    :param named: the silos that the specification means.
    """
    existing = {ref_of(silo): silo for silo in seen.silos}
    return (
        _quorum_impossible(job, len(named))
        or _silos_missing(job, named, existing)
        or _silos_ambiguous(named)
        or _keys_missing([existing[ref] for ref in named if public_key(existing[ref]) is None])
        or claim_conflict(seen)
        or rejected(seen)
    )


def claim_conflict(seen: JobObservation) -> Diagnosis | None:
    """What is wrong when a claim that is not this job's has the name of its volume."""
    if not seen.claim_conflict:
        return None
    problem = f"has the name of this job's volume but not its label {JOB_UID}={uid_of(seen.job)}"
    remedy = (
        "Delete it if nobody needs it, or delete the job and create it again: its claim then has another name"
    )
    text = f"PersistentVolumeClaim {claim_ref(seen.job)} {problem}, so it may hold the work of another. {remedy}."
    return Diagnosis(Reason.VOLUME_MISSING, text)


def rejected(seen: JobObservation) -> Diagnosis | None:
    """What the API server rejects of the job's own objects; a rejected agent concerns its silo only."""
    return diagnosis_of([rejection for rejection in seen.rejections if rejection.kind != SILO_AGENT])


def _quorum_impossible(job: FederatedJob, silos: int) -> Diagnosis | None:
    finding = next(quorum_findings(job, silos), None)
    if finding is None:
        return None
    path, value, problem, remedy = finding
    permanent = job.spec.silos.selector is None
    remedy = remedy if permanent else f"{remedy} in a new job, or label more Silos"
    return Diagnosis(Reason.QUORUM_IMPOSSIBLE, f"{path} {value} {problem}; {remedy}.", permanent)


def _silos_missing(
    job: FederatedJob, named: Sequence[Ref], existing: Mapping[Ref, Object]
) -> Diagnosis | None:
    if not named and job.spec.silos.selector is not None:
        labels = ", ".join(f"{key}={value}" for key, value in job.spec.silos.selector.match_labels.items())
        text = f"No Silo carries the labels {labels}; label the Silos that take part."
        return Diagnosis(Reason.SILO_NOT_FOUND, text)
    lines = [_missing(ref, existing) for ref in named if ref not in existing]
    return Diagnosis(Reason.SILO_NOT_FOUND, joined(lines)) if lines else None


def _missing(ref: Ref, existing: Iterable[Ref]) -> str:
    same_name = [other.namespace for other in sorted(existing) if other.name == ref.name]
    hint = f" There is one in namespace {same_name[0]}: is that meant?" if same_name else ""
    return f"Silo {ref} does not exist; ask the institution to create it, or make a new job without it.{hint}"


def _silos_ambiguous(named: Sequence[Ref]) -> Diagnosis | None:
    lines = list(_namesakes(named))
    return Diagnosis(Reason.SILO_AMBIGUOUS, joined(lines)) if lines else None


def _namesakes(refs: Sequence[Ref]) -> Iterator[str]:
    first: dict[str, Ref] = {}
    for ref in refs:
        if ref.name in first:
            yield (
                f"Silos {first[ref.name]} and {ref} have one name, and names are unique in a job; rename one, or take"
                " the label from it."
            )
        first.setdefault(ref.name, ref)


def _keys_missing(silos: Sequence[Object]) -> Diagnosis | None:
    """A key is made within a second; only where a Silo says what hinders that has a person something to do."""
    if not silos:
        return None
    hindered = [found for silo in silos if (found := _hindrance(silo)) is not None]
    reason = Reason.SILO_NOT_READY if hindered else Reason.KEY_PENDING
    return Diagnosis(reason, joined([_keyless(silo) for silo in silos]))


def _keyless(silo: Object) -> str:
    hindrance = _hindrance(silo)
    if hindrance is None:
        return f"Silo {ref_of(silo)} has published no key yet; the operator is about to make one."
    return f"Silo {ref_of(silo)} has published no key, and the job waits until it has. {hindrance}"


def _hindrance(silo: Object) -> str | None:
    found = condition(silo, ConditionType.READY)
    return str(found["message"]) if found is not None and found["status"] == "False" else None
