"""The interpretation of an observed SiloAgent, the same wherever guard and trainer run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.conditions import AgentPhase, AgentReason, ConditionType
from fedsilo.api.diagnosis import (
    MAX_CONDITION_MESSAGE_CHARACTERS,
    Condition,
    Diagnosis,
    Outcome,
    as_status,
    observed_generation,
)
from fedsilo.api.observed import Object, status_of
from fedsilo.silo.agent.admission import AdmissionDecision
from fedsilo.silo.agent.component import GUARD, TRAINER, exit_seconds, outcome_of, waiting_diagnosis
from fedsilo.silo.agent.observation import Observation
from fedsilo.silo.configuration import configuration, fingerprint
from fedsilo.silo.decision import sign_decision, states


@dataclass(frozen=True)
class Assessment:
    """The state of an agent, and what is to run.

    :param phase: how far it is.
    :param message: what matters most about it.
    :param conditions: `Admitted`, `Ready`, and at the end `Finished` or `Failed`.
    :param outcome: how the silo's part ended; None while it has not.
    :param run: by component, whether it is to run; a component that is missing stays as it is.
    :param begins: whether guard and trainer are to be made where they are missing.
    :param facts: what else the status has, where it is known: proposal, signed decision, fingerprint of the
        configuration with which guard and trainer began or begin now, and what a guard has said.
    :param unsigned: whether a decision has yet to be signed, with a key that was not given.
    """

    phase: AgentPhase
    message: str
    conditions: tuple[Condition, ...]
    outcome: Outcome | None
    run: Mapping[str, bool]
    facts: Mapping[str, object]
    begins: bool = False
    unsigned: bool = False

    def status(self, agent: Object, now: datetime) -> Object:
        """The status that says so."""
        return {
            **observed_generation(agent),
            "phase": str(self.phase),
            "message": self.message[:MAX_CONDITION_MESSAGE_CHARACTERS],
            "conditions": as_status(self.conditions, agent, now),
            **{name: fact for name, fact in self.facts.items() if fact},
        }


def assess(seen: Observation, admission: AdmissionDecision | None, now: datetime) -> Assessment:
    """The state of an agent.

    :param admission: the silo's decision; None once the end is recorded.
    """
    if admission is None:
        assert seen.recorded_outcome is not None, "a silo decides until the end is recorded"
        return _as_recorded(seen, seen.recorded_outcome)
    outcome = outcome_of(seen.trainer, seen.guard)
    phase, ready = _progress(seen, admission, outcome)
    decided = outcome is None and (not admission.admitted or phase == AgentPhase.ADMITTED)
    begins = admission.admitted and outcome is None and not seen.suspended
    decision, unsigned = _decision(seen, admission, now)
    facts = {
        "proposal": _proposal(seen, admission),
        "decision": decision,
        "configuration": _configuration(seen, admission, begins),
        **seen.said,
    }
    return Assessment(
        phase=phase,
        message=(admission.diagnosis if decided else ready).message,
        conditions=_conditions(admission, phase, ready, outcome),
        outcome=outcome,
        run=_run(seen, admission) if outcome is None else _run_at_the_end(seen, outcome),
        facts=facts,
        begins=begins,
        unsigned=unsigned,
    )


def _conditions(
    admission: AdmissionDecision, phase: AgentPhase, ready: Diagnosis, outcome: Outcome | None
) -> tuple[Condition, ...]:
    admitted = Condition.of(ConditionType.ADMITTED, admission.status, admission.diagnosis)
    runs = Condition.of(ConditionType.READY, "True" if phase == AgentPhase.RUNNING else "False", ready)
    if outcome is None:
        return admitted, runs
    end = ConditionType.FINISHED if outcome.succeeded else ConditionType.FAILED
    return admitted, runs, Condition.of(end, "True", outcome.diagnosis)


def _as_recorded(seen: Observation, outcome: Outcome) -> Assessment:
    """The end as it was written: it is never taken back, whatever is observed after it."""
    stated = status_of(seen.agent)
    found = stated["conditions"]
    return Assessment(
        phase=_final_phase(outcome),
        message=stated["message"],
        conditions=tuple(
            Condition(one["type"], one["status"], one["reason"], one.get("message", "")) for one in found
        ),
        outcome=outcome,
        run=_run_at_the_end(seen, outcome),
        facts={name: stated.get(name) for name in ("proposal", "decision", "configuration")} | {**seen.said},
    )


def _final_phase(outcome: Outcome) -> AgentPhase:
    return AgentPhase.FINISHED if outcome.succeeded else AgentPhase.FAILED


def _progress(
    seen: Observation, admission: AdmissionDecision, outcome: Outcome | None
) -> tuple[AgentPhase, Diagnosis]:
    """How far the agent is, and why guard and trainer run or do not."""
    if outcome is not None:
        return _final_phase(outcome), outcome.diagnosis
    if not admission.admitted and not (admission.unreadable and seen.begun):
        phase = admission.phase
        text = f"No {seen.run_as}: the silo does not admit the job."
        ready = Diagnosis(AgentReason.ADMITTING, text)
    elif not seen.suspended:
        waits = waiting_diagnosis(seen.trainer, seen.guard)
        phase = AgentPhase.STARTING if waits else AgentPhase.RUNNING
        ready = waits or Diagnosis(AgentReason.RUNNING, "Guard and trainer run.")
    else:
        phase = AgentPhase.SUSPENDED if seen.begun else AgentPhase.ADMITTED
        ready = Diagnosis(AgentReason.SUSPENDED, _suspended_message(seen))
    return phase, seen.rejected or ready


def _suspended_message(seen: Observation) -> str:
    if not seen.begun:
        return f"No {seen.run_as} yet: the job starts when enough silos have admitted it."
    if seen.trainer.alive or seen.guard.alive:
        return f"The {seen.run_as} are being stopped."
    return f"No {seen.run_as}: the job is suspended, put off or over."


def _run_at_the_end(seen: Observation, outcome: Outcome) -> dict[str, bool]:
    """Which components run at the end, when nothing computes any more. A guard stays after a failure until the job is
    over: it reports why there is no answer.
    """
    return {TRAINER: False, GUARD: not outcome.succeeded and not seen.suspended}


def _run(seen: Observation, admission: AdmissionDecision) -> dict[str, bool]:
    """Which of guard and trainer are to run, before the end."""
    left = exit_seconds(seen.trainer, seen.guard)
    if left is not None:
        return {GUARD: False} if left else {TRAINER: False, GUARD: False}
    if not seen.suspended and admission.unreadable:
        return {}
    runs = not seen.suspended and admission.admitted
    return {TRAINER: runs, GUARD: runs}


def _proposal(seen: Observation, admission: AdmissionDecision) -> object | None:
    """What the silo decides on; where that cannot be read any more, as it was last."""
    if admission.ruling is None:
        return status_of(seen.agent).get("proposal")
    return admission.ruling.proposal.model_dump(mode="json", by_alias=True, exclude_none=True)


def _decision(seen: Observation, admission: AdmissionDecision, now: datetime) -> tuple[Object | None, bool]:
    """The silo's signed word, and whether it has yet to be signed.

    An agent outside its silo's namespace was not made by the job controller, and gets no signature.
    """
    stated, agent, silo = status_of(seen.agent).get("decision"), admission.agent, admission.silo
    if agent is None or silo is None or admission.ruling is None:
        return stated, False
    published = silo.status.public_key
    if published is None or agent.spec.silo.namespace != agent.metadata.namespace:
        return stated, False
    if states(stated, admission.ruling, published):
        return stated, False
    if seen.key is None or seen.key.verify_key.to_text() != published:
        return None, True
    return sign_decision(admission.ruling, now, seen.key), False


def _configuration(seen: Observation, admission: AdmissionDecision, begins: bool) -> str | None:
    """Fingerprint of the configuration with which guard and trainer began, or begin now."""
    recorded: str | None = status_of(seen.agent).get("configuration")
    if recorded:
        return recorded
    if seen.files is not None:
        return fingerprint(seen.files)
    if begins and seen.can_begin and admission.agent is not None and admission.silo is not None:
        return fingerprint(configuration(admission.agent, admission.silo))
    return None
