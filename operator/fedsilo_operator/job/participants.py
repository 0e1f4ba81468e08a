"""The silos of a job: the candidates, the decision of each, and the state of its agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsilo.api.conditions import GUARD_STATE_TEXTS, AgentPhase, ConditionType
from fedsilo.api.contradictions import quorum_findings
from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, condition, holds, status_of, uid_of
from fedsilo_operator.institution import remote_of
from fedsilo_operator.job.decisions import ExpectedProposal, verify_decision
from fedsilo_operator.job.gateway import ROUTE, gateway_of
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silo_keys import SiloKeys
from fedsilo_operator.names import agent_name
from fedsilo_operator.objects import SILO_AGENT, Ref, ref_of
from fedsilo_operator.reasons import Reason


@dataclass(frozen=True)
class Participant:
    """A silo of the job, and how far its agent is.

    :param public_key: None while the silo has published none.
    :param agent: None while there is none.
    :param exists: whether there is such a Silo now; without one no agent is made.
    :param trusted: whether the agent, if there is one, has what the operator wrote into it.
    :param admitted: whether the silo takes part if the job starts, by its own signed word.
    :param decided: whether the silo's decision stands unless somebody changes something; that of a person may be
        awaited.
    :param objection: why the silo does not admit the job, or why the operator cannot ask it.
    :param ready: whether the agent runs, or has run to its end.
    :param failure: why the agent has failed, if it has.
    :param not_ready: what the job waits for where the agent neither runs nor has failed.
    :param hindrance: what keeps its guard from going on, as the guard itself says to the aggregator.
    :param unheard: since when nothing was heard of a remote silo, if nothing is.
    :param remote: whether the institution is outside of the cluster.
    :param gateway: URL and authority of the gateway by which a remote silo reaches the aggregator, once it is known.
    :param phase: as the agent reports it.
    :param message: a note about the silo, for people.
    """

    ref: Ref
    public_key: str | None
    agent: Object | None
    exists: bool
    trusted: bool
    admitted: bool
    decided: bool
    objection: Diagnosis | None
    ready: bool
    failure: str | None
    not_ready: Diagnosis | None
    unheard: Diagnosis | None
    hindrance: Diagnosis | None
    remote: bool
    gateway: Mapping[str, str] | None
    phase: str
    message: str


def reports_admitted(agent: Object | None) -> bool:
    """Whether an agent's status says that the silo admits the job."""
    return agent is not None and holds(agent, ConditionType.ADMITTED)


def candidates(
    seen: JobObservation,
    keys: SiloKeys,
    distrusted: Mapping[Ref, Diagnosis],
    question: ExpectedProposal | None,
) -> tuple[Participant, ...]:
    """The silos in question; after the start those that the job started with, whatever became of them.

    :param keys: the job's silos, some of which may not exist.
    :param distrusted: by silo, what is wrong with its agent's trust.
    :param question: what an admission must be the answer to; None once the job has started.
    """
    existing = {ref_of(silo): silo for silo in seen.silos}
    rejections = {found.ref: found.diagnosis for found in seen.rejections if found.kind == SILO_AGENT}
    job_ref, uid = ref_of(seen.job), uid_of(seen.job)
    hindrances = _hindrances(seen.job)
    return tuple(
        _participant(
            ref,
            key,
            seen.agents.get(ref),
            existing.get(ref),
            distrusted.get(ref) or rejections.get(Ref(ref.namespace, agent_name(job_ref, uid, ref))),
            _doubt(question, seen.agents.get(ref), existing.get(ref), key),
            trusted=ref not in distrusted,
            settled=seen.has_started,
            hindrance=hindrances.get(ref),
        )
        for ref, key in keys
        if seen.has_started or ref in existing
    )


def _doubt(
    question: ExpectedProposal | None, agent: Object | None, silo: Object | None, public_key: str | None
) -> Diagnosis | None:
    """Why an admission before the start is not the silo's word."""
    if question is None or agent is None or silo is None or public_key is None or not reports_admitted(agent):
        return None
    return verify_decision(question, agent, silo, public_key)


def initial_participants(job: FederatedJob, candidates: Sequence[Participant]) -> tuple[Participant, ...]:
    """The silos that the job can start with; none as long as too few have admitted it.

    Named silos start together or not at all. Under a selector all must have decided, and as many as the quorum asks
    for must have admitted the job.
    """
    admitted = tuple(participant for participant in candidates if participant.admitted)
    if job.spec.silos.selector is None or job.spec.participation.min_silos is None:
        return admitted if len(admitted) == len(candidates) else ()
    if not all(participant.decided for participant in candidates):
        return ()
    return () if any(quorum_findings(job, len(admitted))) else admitted


def phase_and_message(agent: Object | None) -> tuple[str, str]:
    """Phase and message that an agent reports."""
    status = status_of(agent or {})
    return status.get("phase") or str(AgentPhase.PENDING), status.get("message") or ""


def _participant(
    ref: Ref,
    public_key: str | None,
    agent: Object | None,
    silo: Object | None,
    problem: Diagnosis | None,
    doubt: Diagnosis | None,
    *,
    trusted: bool,
    settled: bool,
    hindrance: Diagnosis | None,
) -> Participant:
    """The participant as its agent's status describes it.

    :param silo: the Silo as observed; None where it is gone.
    :param problem: why the operator may not make or change the agent, or does not trust it.
    :param doubt: why the admission that the status claims does not count.
    :param settled: whether the job has started.
    """
    exists = silo is not None
    refusal = _refusal(agent)
    admitted = trusted and doubt is None and reports_admitted(agent)
    objection = problem or doubt
    refused_for_good = refusal is not None and refusal.reason != Reason.APPROVAL_PENDING
    ready = problem is None and _runs_or_ran(agent)
    failure = _failure(agent, silo if settled else None)
    unheard = _lost_contact(silo, agent)
    phase, message = phase_and_message(agent)
    if objection is not None:
        message = objection.message
    elif not exists and not ready and failure is None:
        message = _gone_message(agent, public_key)
    elif failure is not None:
        message = failure
    elif unheard is not None:
        message = unheard.message
    elif hindrance is not None:
        message = hindrance.message
    elif public_key is None:
        message = "The silo has published no key yet."
    return Participant(
        ref,
        public_key,
        agent,
        exists,
        trusted=trusted,
        admitted=admitted,
        decided=trusted and (admitted or refused_for_good),
        objection=refusal if objection is None else objection.with_subject(f"Silo {ref.name}"),
        ready=ready,
        failure=failure,
        not_ready=None if ready or failure is not None else problem or _not_ready(agent, public_key, exists),
        unheard=unheard,
        hindrance=None if failure is not None else hindrance,
        remote=remote_of(silo) is not None,
        gateway=gateway_of(silo),
        phase=phase,
        message=message,
    )


def _hindrances(job: Object) -> dict[Ref, Diagnosis]:
    """What the silos' guards say of themselves, as the aggregator reports it; a word that is not known counts not."""
    return {
        Ref(entry["namespace"], entry["name"]): Diagnosis(state, GUARD_STATE_TEXTS[state])
        for entry in status_of(job).get("silos") or ()
        if (state := entry.get("hindrance")) in GUARD_STATE_TEXTS and "namespace" in entry
    }


def _failure(agent: Object | None, silo: Object | None) -> str | None:
    """Why the silo's part is over before its end: its agent failed, or its institution takes part no more.

    :param silo: None where it is no matter what became of the Silo.
    """
    failed = condition(agent or {}, ConditionType.FAILED)
    if failed is not None and failed["status"] == "True":
        return str(failed["message"])
    if remote_of(silo) is None or (agent is not None and holds(agent, ConditionType.FINISHED)):
        return None
    found = condition(silo or {}, ConditionType.READY)
    return str(found["message"]) if found and found["reason"] in (Reason.LEFT, Reason.REVOKED) else None


def _lost_contact(silo: Object | None, agent: Object | None) -> Diagnosis | None:
    """Since when nothing was heard of a silo whose part is not over, if nothing is."""
    found = condition(silo or {}, ConditionType.CONNECTED)
    if found is None or found["status"] == "True" or (agent and holds(agent, ConditionType.FINISHED)):
        return None
    return Diagnosis(found["reason"], found["message"])


def _refusal(agent: Object | None) -> Diagnosis | None:
    """What the silo has against the job."""
    found = condition(agent or {}, ConditionType.ADMITTED)
    return Diagnosis(found["reason"], found["message"]) if found and found["status"] == "False" else None


def _runs_or_ran(agent: Object | None) -> bool:
    return agent is not None and (holds(agent, ConditionType.READY) or holds(agent, ConditionType.FINISHED))


def _gone_message(agent: Object | None, public_key: str | None) -> str:
    """What to do about a Silo that is gone. The key of an institution outside of the cluster is in no Secret here."""
    if public_key is None:
        return "the Silo is gone; create it again."
    if agent is not None and ROUTE in agent["spec"]:
        return f"the Silo is gone; create it again, with spec.remote.publicKey {public_key}."
    return "the Silo is gone; restore it with its key."


def _not_ready(agent: Object | None, public_key: str | None, exists: bool) -> Diagnosis:
    """Why an agent that the operator may use neither runs nor has failed."""
    if not exists:
        return Diagnosis(Reason.SILO_NOT_FOUND, _gone_message(agent, public_key))
    if agent is None and public_key is None:
        return Diagnosis(Reason.SILO_NOT_READY, "its agent and its key are both gone; restore the key.")
    if agent is None:
        return Diagnosis(Reason.STARTING, "its agent is being made.")
    if (refusal := _refusal(agent)) is not None:
        return refusal
    found = condition(agent, ConditionType.READY)
    if found is None or found["reason"] in (Reason.SUSPENDED, Reason.ADMITTING):
        return Diagnosis(Reason.STARTING, "its agent has not started yet.")
    return Diagnosis(found["reason"], found["message"])
