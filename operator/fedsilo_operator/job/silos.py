"""Which silos take part, what each of them has decided, and how far its agent is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import quorum_findings
from fedsilo.api.observed import condition, status_of
from fedsilo_operator.conditions import Condition
from fedsilo_operator.job.member import Member
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.names import agent_name
from fedsilo_operator.objects import CONFIG_MAP, JOB_UID, SILO_AGENT, Object, Ref, labels_of, ref_of, uid_of
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.rejections import Rejection, diagnosis_of
from fedsilo_operator.workloads.aggregator import claim_ref, public_keys_in

GONE = "the Silo is gone; restore it with its key."

_SHOWN, _LONGEST = 20, 1000
"""Lines of a message that lists silos, and characters of each."""


@dataclass(frozen=True)
class Choice:
    """The silos of a job, and why it cannot start with them yet.

    :param obstacle: None when nothing is in the way but the silos' own decisions. It need not lie with a silo.
    """

    members: tuple[Member, ...]
    obstacle: Diagnosis | None = None


def choose(seen: JobObservation, job: FederatedJob, distrusted: Mapping[Ref, str]) -> Choice:
    """The silos that the job names; after the start those that it started with, whatever became of them.

    :param distrusted: by silo, what is wrong with what its agent says.
    """
    choice = _choice(seen, job)
    rejected = {rejection.ref: rejection for rejection in seen.rejections if rejection.kind == SILO_AGENT}
    if not rejected and not distrusted:
        return choice
    members = tuple(_hindered(seen, member, rejected, distrusted) for member in choice.members)
    return replace(choice, members=members)


def _hindered(
    seen: JobObservation, member: Member, rejected: Mapping[Ref, Rejection], distrusted: Mapping[Ref, str]
) -> Member:
    if member.ref in distrusted:
        return replace(member, hindrance=Diagnosis(Reason.TRUST_BROKEN, distrusted[member.ref]))
    name = agent_name(ref_of(seen.job), uid_of(seen.job), member.ref)
    found = rejected.get(Ref(member.ref.namespace, name))
    return member if found is None else replace(member, hindrance=found.diagnosis)


def _choice(seen: JobObservation, job: FederatedJob) -> Choice:
    if seen.has_started:
        return Choice(tuple(_frozen(seen, job)))
    known = {ref_of(silo): silo for silo in seen.silos}
    if job.spec.silos.selector is None:
        refs = [Ref(ref.namespace, ref.name) for ref in job.spec.silos.refs]
    else:
        wanted = job.spec.silos.selector.match_labels.items()
        refs = sorted(ref for ref, silo in known.items() if wanted <= labels_of(silo).items())
    members = tuple(
        Member(ref, _public_key(known.get(ref)), seen.agents.get(ref)) for ref in refs if ref in known
    )
    if finding := next(quorum_findings(job, len(refs)), None):
        path, value, problem, remedy = finding
        named = job.spec.silos.selector is None
        remedy = remedy if named else f"{remedy} in a new job, or label more Silos"
        text = f"{path} {value} {problem}; {remedy}."
        return Choice(members, Diagnosis(Reason.QUORUM_IMPOSSIBLE, text, permanent=named))
    return Choice(members, _obstacle(job, refs, known) or claim_conflict(seen) or job_rejections(seen))


def job_rejections(seen: JobObservation) -> Diagnosis | None:
    """What the API server does not do for the job itself; what it does not do in a silo is that silo's."""
    return diagnosis_of([rejection for rejection in seen.rejections if rejection.kind != SILO_AGENT])


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


def starters(job: FederatedJob, choice: Choice) -> tuple[Member, ...]:
    """The silos that the job starts with; none as long as it cannot start.

    Named silos start together or not at all. Under a selector all must have decided, and as many as the quorum asks
    for must have admitted the job.
    """
    admitted = tuple(member for member in choice.members if member.admitted)
    if choice.obstacle is not None or not choice.members:
        return ()
    if job.spec.silos.selector is None or job.spec.participation.min_silos is None:
        return admitted if len(admitted) == len(choice.members) else ()
    if not all(member.decided for member in choice.members) or not admitted:
        return ()
    return () if any(quorum_findings(job, len(admitted))) else admitted


def admission(job: FederatedJob, choice: Choice) -> Condition:
    """What the silos have decided before the start: all objections of all of them at once."""
    members = choice.members
    if starting := starters(job, choice):
        return admitted(starting, [member for member in members if not member.admitted])
    refusals = [found for member in members if (found := _objection(member)) is not None]
    if refusals:
        firm = next((one for one in refusals if one.reason != Reason.APPROVAL_PENDING), refusals[0])
        return Condition(
            ConditionType.ADMITTED, "False", firm.reason, _listed([one.message for one in refusals], "\n")
        )
    waiting = [str(member.ref) for member in members if not member.admitted]
    message = f"Waiting for the decision of {_listed(waiting, ', ')}." if waiting else "Waiting for Silos."
    return Condition(ConditionType.ADMITTED, "False", Reason.ADMITTING, message)


def _objection(member: Member) -> Diagnosis | None:
    if member.hindrance is None:
        return member.refusal
    return replace(member.hindrance, message=f"Silo {member.ref.name}: {member.hindrance.message}")


def admitted(starting: Sequence[Member], left_out: Sequence[Member] = ()) -> Condition:
    """What the silos decided, once the job starts."""
    names = _listed([str(member.ref) for member in left_out], ", ")
    without = f"; it starts without {names}" if names else ""
    return Condition(
        ConditionType.ADMITTED, "True", Reason.ADMITTED, f"{_silos(starting)} admitted the job{without}."
    )


def readiness(members: Sequence[Member]) -> Condition:
    """How far the agents are after the start."""
    failed = [f"Silo {member.ref} failed: {member.failed}" for member in members if member.failed is not None]
    waiting = [(member, _not_ready(member)) for member in members if not member.failed and not member.ready]
    if not failed and not waiting:
        return Condition(
            ConditionType.SILOS_READY, "True", Reason.RUNNING, f"The agents of {_silos(members)} run."
        )
    troubles = [found.reason for _, found in waiting if found.reason != Reason.STARTING]
    reason = Reason.SILO_FAILED if failed else next(iter(troubles), Reason.STARTING)
    lines = failed + [f"Silo {member.ref}: {found.message}" for member, found in waiting]
    return Condition(ConditionType.SILOS_READY, "False", reason, _listed(lines, "\n"))


def lost_quorum(job: FederatedJob, members: Sequence[Member]) -> str | None:
    """Why too few silos are left, naming each that failed; None while there are enough."""
    failed = [member for member in members if member.failed is not None]
    participation = job.spec.participation
    left, needed = len(members) - len(failed), participation.quorum(participation.sampled(len(members)))
    if not failed or left >= needed:
        return None
    lines = [f"Silo {member.ref} failed: {member.failed}" for member in failed]
    return f"{left} of {_silos(members)} left, the quorum is {needed}. {_listed(lines, ' ')}"


def _frozen(seen: JobObservation, job: FederatedJob) -> Iterator[Member]:
    """The silos of the start: the aggregator's configuration says them, and the status does if that is lost."""
    known = {ref_of(silo): silo for silo in seen.silos}
    if CONFIG_MAP in seen.children:
        for ref, public_key in public_keys_in(seen.children[CONFIG_MAP]).items():
            yield Member(ref, public_key, seen.agents.get(ref), ref in known)
        return
    order = {Ref(ref.namespace, ref.name): position for position, ref in enumerate(job.spec.silos.refs)}
    for ref in sorted(_started_with(seen.job), key=lambda ref: (order.get(ref, 0), ref)):
        agent = seen.agents.get(ref)
        key = agent["spec"]["trust"]["publicKey"] if agent else _public_key(known.get(ref))
        yield Member(ref, key, agent, ref in known)


def _started_with(job: Object) -> Iterator[Ref]:
    for entry in job["status"].get("silos") or ():
        if entry.get("phase") != AgentPhase.LEFT_OUT and "namespace" in entry:
            yield Ref(entry["namespace"], entry["name"])


def _obstacle(job: FederatedJob, refs: Sequence[Ref], known: dict[Ref, Object]) -> Diagnosis | None:
    if not refs and job.spec.silos.selector is not None:
        labels = ", ".join(f"{key}={value}" for key, value in job.spec.silos.selector.match_labels.items())
        return Diagnosis(
            Reason.SILO_NOT_FOUND, f"No Silo carries the labels {labels}; label the Silos that take part."
        )
    lines = [_missing(ref, known) for ref in refs if ref not in known]
    if lines:
        return Diagnosis(Reason.SILO_NOT_FOUND, _listed(lines, "\n"))
    if lines := list(_namesakes(refs)):
        return Diagnosis(Reason.SILO_AMBIGUOUS, _listed(lines, "\n"))
    return _without_key([known[ref] for ref in refs if _public_key(known[ref]) is None])


def _missing(ref: Ref, known: Iterable[Ref]) -> str:
    same_name = [other.namespace for other in sorted(known) if other.name == ref.name]
    hint = f" There is one in namespace {same_name[0]}: is that meant?" if same_name else ""
    return f"Silo {ref} does not exist; ask the institution to create it, or make a new job without it.{hint}"


def _namesakes(refs: Sequence[Ref]) -> Iterator[str]:
    first: dict[str, Ref] = {}
    for ref in refs:
        if ref.name in first:
            yield (
                f"Silos {first[ref.name]} and {ref} have one name, and names are unique in a job; rename one, or take"
                " the label from it."
            )
        first.setdefault(ref.name, ref)


def _without_key(silos: Sequence[Object]) -> Diagnosis | None:
    """A key is made within a second; only where a Silo says what hinders that has a person something to do."""
    if not silos:
        return None
    hindered = [
        found
        for silo in silos
        if (found := condition(silo, ConditionType.READY)) and found["status"] == "False"
    ]
    reason = Reason.SILO_NOT_READY if hindered else Reason.KEY_PENDING
    return Diagnosis(reason, _listed([_keyless(silo) for silo in silos], "\n"))


def _keyless(silo: Object) -> str:
    found = condition(silo, ConditionType.READY)
    if found is None or found["status"] != "False":
        return f"Silo {ref_of(silo)} has published no key yet; the operator is about to make one."
    return f"Silo {ref_of(silo)} has published no key, and the job waits until it has. {found['message']}"


def _not_ready(member: Member) -> Diagnosis:
    """Why an agent is not ready that neither runs nor has failed."""
    if member.hindrance is not None:
        return member.hindrance
    if member.gone:
        return Diagnosis(Reason.SILO_NOT_FOUND, GONE)
    if member.agent is None and member.public_key is None:
        return Diagnosis(Reason.SILO_NOT_READY, "its agent and its key are both gone; restore the key.")
    if member.agent is None:
        return Diagnosis(Reason.STARTING, "its agent is being made.")
    if member.refusal is not None:
        return member.refusal
    found: Any = condition(member.agent, ConditionType.READY)
    if found is None or found["reason"] in (Reason.SUSPENDED, Reason.ADMITTING):
        return Diagnosis(Reason.STARTING, "its agent has not started yet.")
    return Diagnosis(found["reason"], found["message"])


def _public_key(silo: Object | None) -> str | None:
    return status_of(silo or {}).get("publicKey")


def _silos(members: Sequence[Member]) -> str:
    return f"{len(members)} silo{'' if len(members) == 1 else 's'}"


def _listed(lines: Sequence[str], between: str) -> str:
    """The first lines: a message is for a person."""
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return between.join([*(line[:_LONGEST] for line in lines[:_SHOWN]), *more])
