"""What blocks a job before its start: silos missing, too few, ambiguous, or without key, gateway or signed offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedsilo.api.contradictions import quorum_findings
from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object
from fedsilo.wire import sharing
from fedsilo_operator.institution import remote_of
from fedsilo_operator.job.decisions import not_ready_message, offer_doubt
from fedsilo_operator.job.gateway import gateway_of
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silo_keys import public_key
from fedsilo_operator.messages import join_lines
from fedsilo_operator.objects import Ref, ref_of
from fedsilo_operator.reasons import Reason


def blocker(seen: JobObservation, job: FederatedJob, named: Sequence[Ref]) -> Diagnosis | None:
    """Why the silos that the job names cannot be asked, or cannot be enough; None when they can.

    :param named: the silos that the specification means.
    """
    existing = {ref_of(silo): silo for silo in seen.silos}
    return (
        _quorum_impossible(job, len(named))
        or _silos_missing(job, named, existing)
        or _silos_ambiguous(named)
        or _keys_missing([existing[ref] for ref in named if public_key(existing[ref]) is None])
        or _keys_shared({str(ref): public_key(existing[ref]) or "" for ref in named})
        or _gateway_missing([existing[ref] for ref in named])
        or _offers_doubted([existing[ref] for ref in named])
    )


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
    lines = [_missing_silo(ref, existing) for ref in named if ref not in existing]
    return Diagnosis(Reason.SILO_NOT_FOUND, join_lines(lines)) if lines else None


def _missing_silo(ref: Ref, existing: Iterable[Ref]) -> str:
    same_name = [other.namespace for other in sorted(existing) if other.name == ref.name]
    hint = f" There is one in namespace {same_name[0]}: is that meant?" if same_name else ""
    return f"Silo {ref} does not exist; ask the institution to create it, or make a new job without it.{hint}"


def _silos_ambiguous(named: Sequence[Ref]) -> Diagnosis | None:
    lines = list(_namesakes(named))
    return Diagnosis(Reason.SILO_AMBIGUOUS, join_lines(lines)) if lines else None


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
    """A key is made within a second; somebody has to act only where a Silo reports what prevents that."""
    if not silos:
        return None
    hindered = [found for silo in silos if (found := not_ready_message(silo)) is not None]
    reason = Reason.SILO_NOT_READY if hindered else Reason.KEY_PENDING
    return Diagnosis(reason, join_lines([_keyless(silo) for silo in silos]))


def _keyless(silo: Object) -> str:
    hindrance = not_ready_message(silo)
    if hindrance is None:
        return f"Silo {ref_of(silo)} has published no key yet; the operator is about to make one."
    return f"Silo {ref_of(silo)} has published no key, and the job waits until it has. {hindrance}"


def _keys_shared(keys: Mapping[str, str]) -> Diagnosis | None:
    """Two Silos of one key are one silo, whose model would count twice and with which a quorum would be met."""
    shared = sharing(keys)
    if shared is None:
        return None
    one, other = shared
    text = (
        f"Silos {one} and {other} have published one key, {keys[one]}, so that they are one silo. Those of one "
        "namespace share one: move one into a namespace of its own, or take it out of the job."
    )
    return Diagnosis(Reason.SILO_AMBIGUOUS, text)


def _gateway_missing(silos: Sequence[Object]) -> Diagnosis | None:
    """Remote silos that could not reach the aggregator, since no gateway has said where it is."""
    names = [str(ref_of(silo)) for silo in silos if remote_of(silo) is not None and gateway_of(silo) is None]
    if not names:
        return None
    text = (
        f"No gateway has written its address into status.hub of Silo {join_lines(names, ', ')}, so the job waits; "
        "install the gateway (the chart's gateway.url)."
    )
    return Diagnosis(Reason.SILO_NOT_READY, text)


def _offers_doubted(silos: Sequence[Object]) -> Diagnosis | None:
    """Offers that their silos have not signed; what is wrong goes before what is awaited."""
    doubts = [offer_doubt(silo, public_key(silo) or "") for silo in silos]
    found = [doubt for doubt in doubts if doubt is not None]
    if not found:
        return None
    reason = next((doubt.reason for doubt in found if doubt.reason != Reason.KEY_PENDING), Reason.KEY_PENDING)
    return Diagnosis(reason, join_lines([doubt.message for doubt in found]))
