"""The interpretation of an observed SiloAgent: done here, once, for actions, conditions and status alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo.api.silo import Silo
from fedsilo.silo.configuration import fingerprint
from fedsilo.silo.decision import sign_decision, states
from fedsilo_operator.diagnosis.events import backoff
from fedsilo_operator.objects import JOB, ref_of, silo_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.rejections import diagnosis_of
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo.admission import AdmissionDecision, decide
from fedsilo_operator.silo.budgets import ledger_of
from fedsilo_operator.silo.component import components, trainer_exit_seconds, trainer_lost_seconds
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.silo.receipts import receipts
from fedsilo_operator.silo.state import AgentState, ComponentState
from fedsilo_operator.silo.succession import with_key_for
from fedsilo_operator.workloads.agent import (
    GUARD,
    TRAINER,
    ParsedAgent,
    config_map,
    policy_map,
)

LAST_MOMENT = timedelta(seconds=1)
"""A policy still permits what it permits at the very moment of `notAfter`."""

LONGEST_WAIT_SECONDS = 3600.0
"""Time until a date of a policy is looked at again: clocks are set."""

UNSIGNED_POLL_SECONDS = 30.0
"""Time after which a silo's key is looked for again that was not there, or not the one published: Secrets are not
watched."""


def assess(seen: AgentObservation, now: datetime, settings: SiloSettings) -> AgentState:
    """The state of an agent that is not being deleted."""
    seen = replace(seen, silo=with_key_for(seen.agent, seen.silo))
    trainer, guard = components(seen, now)
    recorded = _recorded_outcome(seen.agent)
    if recorded is not None:
        return AgentState(
            agent=seen.agent,
            trainer=trainer,
            guard=guard,
            phase=_final_phase(recorded),
            message=seen.agent["status"]["message"],
            ready=recorded.diagnosis,
            outcome=recorded,
            suspend=_suspend_at_the_end(seen),
            proposal=status_of(seen.agent).get("proposal"),
            decision=status_of(seen.agent).get("decision"),
            configuration=_configuration(seen, None),
            receipts=receipts(seen),
            ledger=_ledger(seen),
        )
    admission = decide(seen, now, settings)
    outcome = _outcome(trainer, guard)
    phase, ready = _progress(seen, admission, outcome, trainer, guard)
    exit_seconds = 0.0 if outcome else trainer_exit_seconds(trainer, guard, now)
    starting = admission.admitted and phase == AgentPhase.STARTING
    may_make_children = outcome is None and not seen.suspended and not seen.orphans
    children_from = admission.parsed if may_make_children else None
    decision, unsigned = _decision(seen, admission, now)
    return AgentState(
        agent=seen.agent,
        trainer=trainer,
        guard=guard,
        phase=phase,
        message=_message(admission, outcome, phase, ready),
        ready=ready,
        outcome=outcome,
        admission=admission,
        suspend=_suspend_at_the_end(seen) if outcome else _suspend(seen, admission, exit_seconds),
        children=frozenset(seen.children),
        children_from=children_from,
        policy=_outdated_policy(seen, admission),
        proposal=_proposal(seen, admission),
        decision=decision,
        unsigned=unsigned,
        configuration=_configuration(seen, children_from),
        receipts=receipts(seen),
        ledger=_ledger(seen),
        requeue_after=_requeue_after(
            backoff(_jobs_and_pods(seen), now) if starting else exit_seconds,
            0.0 if outcome or admission.present is None else _until_next_date(admission.present.silo, now),
            UNSIGNED_POLL_SECONDS if unsigned else 0.0,
            None if outcome else trainer_lost_seconds(seen, trainer, guard, now),
        ),
    )


def _ledger(seen: AgentObservation) -> Object | None:
    """What the guard said last of what is spent of a budget."""
    return ledger_of(status_of(seen.agent).get("ledger"), seen.pods.get(GUARD, ()))


def _recorded_outcome(agent: Object) -> Outcome | None:
    """The end that the agent's status has recorded."""
    for end in (ConditionType.FINISHED, ConditionType.FAILED):
        if holds(agent, end):
            found = condition(agent, end) or {}
            diagnosis = Diagnosis(found["reason"], found.get("message", ""))
            return Outcome(end == ConditionType.FINISHED, diagnosis)
    return None


def _outcome(trainer: ComponentState, guard: ComponentState) -> Outcome | None:
    """How the silo's part ended: it fails with either component, and is finished when its guard is."""
    ends = [component.outcome for component in (trainer, guard) if component.outcome is not None]
    failed = [end.diagnosis for end in ends if not end.succeeded]
    if failed:
        message = " ".join(diagnosis.message for diagnosis in failed)
        return Outcome(False, Diagnosis(failed[0].reason, message))
    if guard.outcome is not None and (trainer.outcome is not None or trainer.stopped):
        text = "The job is over for this silo: guard and trainer are done."
        return Outcome(True, Diagnosis(Reason.FINISHED, text))
    return None


def _final_phase(outcome: Outcome) -> AgentPhase:
    return AgentPhase.FINISHED if outcome.succeeded else AgentPhase.FAILED


def _progress(
    seen: AgentObservation,
    admission: AdmissionDecision,
    outcome: Outcome | None,
    trainer: ComponentState,
    guard: ComponentState,
) -> tuple[AgentPhase, Diagnosis]:
    """How far the agent is, and why guard and trainer run or do not."""
    if outcome is not None:
        return _final_phase(outcome), outcome.diagnosis
    if not admission.admitted and not (admission.unreadable and seen.started):
        phase = admission.phase
        ready = Diagnosis(Reason.ADMITTING, "No pods: the silo does not admit the job.")
    elif not seen.suspended:
        blocked = _blocked(seen, trainer, guard)
        phase = AgentPhase.STARTING if blocked else AgentPhase.RUNNING
        ready = blocked or Diagnosis(Reason.RUNNING, "Guard and trainer run.")
    else:
        phase = AgentPhase.SUSPENDED if seen.started else AgentPhase.ADMITTED
        ready = Diagnosis(Reason.SUSPENDED, _suspended_message(seen, trainer, guard))
    return phase, diagnosis_of(seen.rejections) or ready


def _blocked(seen: AgentObservation, trainer: ComponentState, guard: ComponentState) -> Diagnosis | None:
    """What guard and trainer wait for; None when they run."""
    waiting = [component for component in (trainer, guard) if component.waiting]
    if not waiting:
        return None
    known = next((component.diagnosis for component in waiting if component.diagnosis), None)
    if known is not None:
        return known
    if seen.orphans:
        names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in seen.orphans)
        text = f"Waiting until {names} is gone, which an earlier agent of this name has left."
    elif seen.previous_pods:
        text = f"Waiting for the end of an earlier pod ({', '.join(sorted(seen.previous_pods))})."
    else:
        text = f"Waiting for {' and '.join(f'the {component.name}' for component in waiting)} to run."
    return Diagnosis(Reason.STARTING, text)


def _suspended_message(seen: AgentObservation, trainer: ComponentState, guard: ComponentState) -> str:
    if not seen.started:
        return "No pods yet: the job starts when enough silos have admitted it."
    if trainer.alive or guard.alive:
        return "The pods are being stopped."
    return "No pods: the job is suspended or over."


def _message(
    admission: AdmissionDecision, outcome: Outcome | None, phase: AgentPhase, ready: Diagnosis
) -> str:
    decided = not admission.admitted or phase == AgentPhase.ADMITTED
    return admission.diagnosis.message if outcome is None and decided else ready.message


def _suspend_at_the_end(seen: AgentObservation) -> dict[str, bool]:
    """Nothing computes any more. A guard stays until the job is over: it reports why there is no answer."""
    return {TRAINER: True, GUARD: seen.suspended}


def _suspend(seen: AgentObservation, admission: AdmissionDecision, exit_seconds: float) -> dict[str, bool]:
    """Which Jobs are to be suspended, and which to go on, before the end."""
    if not seen.suspended and admission.unreadable:
        return {}
    if not seen.suspended and admission.admitted:
        return {TRAINER: False, GUARD: False}
    return {GUARD: True} if exit_seconds else {TRAINER: True, GUARD: True}


def _proposal(seen: AgentObservation, admission: AdmissionDecision) -> Object | None:
    """What the silo decides on; where that cannot be read any more, as it was last."""
    if admission.proposal is None:
        return status_of(seen.agent).get("proposal")
    document: Object = admission.proposal.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def _decision(
    seen: AgentObservation, admission: AdmissionDecision, now: datetime
) -> tuple[Object | None, bool]:
    """The silo's signed word, and whether it has yet to be signed.

    An agent outside its silo's namespace was not made by the job controller, and gets no signature.
    """
    stated, ruling = status_of(seen.agent).get("decision"), admission.ruling
    published = status_of(seen.silo or {}).get("publicKey")
    if ruling is None or published is None or silo_of(seen.agent).namespace != ref_of(seen.agent).namespace:
        return stated, False
    if states(stated, ruling, published):
        return stated, False
    key = seen.signing_key
    if key is None or key.verify_key.to_text() != published:
        return None, True
    return sign_decision(ruling, now, key), False


def _configuration(seen: AgentObservation, children_from: ParsedAgent | None) -> str | None:
    """Fingerprint of the configuration with which guard and trainer began, or begin now."""
    recorded: str | None = status_of(seen.agent).get("configuration")
    if recorded:
        return recorded
    if seen.configuration is not None:
        return fingerprint(seen.configuration["data"])
    if children_from is not None and not seen.rejections:
        return fingerprint(config_map(children_from)["data"])
    return None


def _outdated_policy(seen: AgentObservation, admission: AdmissionDecision) -> Object | None:
    """The ConfigMap of the present policy as it should be, where it is there and says something else.

    A guard that runs reads it before anything leaves, so that it is kept current whatever was decided about the job.
    """
    observed = seen.present_policy
    if observed is None or admission.present is None:
        return None
    wanted = policy_map(admission.present)
    return None if observed.get("data") == wanted["data"] else wanted


def _until_next_date(silo: Silo, now: datetime) -> float:
    """Seconds until a date of the policy may change the decision, an hour at most; 0 when none will."""
    rules = silo.spec.policy
    changes = (
        *((rules.not_before.moment - now,) if rules.not_before is not None else ()),
        *((rules.not_after.moment - now + LAST_MOMENT,) if rules.not_after is not None else ()),
    )
    ahead = [change.total_seconds() for change in changes if change > timedelta()]
    return min((*ahead, LONGEST_WAIT_SECONDS)) if ahead else 0.0


def _requeue_after(*seconds: float | None) -> float | None:
    return min((wait for wait in seconds if wait), default=None)


def _jobs_and_pods(seen: AgentObservation) -> list[Object]:
    jobs = [child for (kind, _), child in seen.children.items() if kind == JOB]
    return [*jobs, *seen.pods[TRAINER], *seen.pods[GUARD]]
