"""What becomes of a SiloAgent: a pure function of what was observed.

Children are made where they are missing and are not touched afterwards, but for the suspension of the Jobs: an operator
that is upgraded, or a Silo that is edited, changes nothing under a job that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.observed import condition, holds, status_of
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.conditions import MAX_MESSAGE, Condition, as_status, moment
from fedsilo_operator.diagnosis.events import backoff
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import JobCondition
from fedsilo_operator.objects import CONFIG_MAP, JOB, Object, is_deleted, kind_of, satisfies
from fedsilo_operator.plan import Action, Apply, Plan, isolate
from fedsilo_operator.reasons import ALARMING, Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.silo.progress import Progress, progress
from fedsilo_operator.silo.verdict import Verdict, decide
from fedsilo_operator.workloads.agent import (
    GUARD,
    TRAINER,
    Site,
    claim,
    config_map,
    fingerprint,
    guard_job,
    guard_policy,
    trainer_job,
    trainer_policy,
)
from fedsilo_operator.workloads.pod import SUSPENDER, is_suspended, suspension

ENDS = (ConditionType.FINISHED, ConditionType.FAILED)

LEAVE = 30.0
"""Seconds in which a trainer whose guard is done may end by itself: it puts the silo's own model into its place, and a
pod that is stopped takes its log along."""

_QUIET = frozenset({Reason.ADMITTING, Reason.FINISHED})
"""Reasons of `Ready` that another condition tells better."""


def plan(seen: AgentObservation, now: datetime, settings: Settings) -> Plan:
    """What to do about an agent, and what to say about it."""
    agent = seen.agent
    if is_deleted(agent):
        return Plan()
    if any(holds(agent, end) for end in ENDS):
        status = _status(agent, _recorded(agent), agent["status"], _began(seen, ()), now)
        return Plan(tuple(_stops(seen)), status=status)
    verdict = decide(seen, settings)
    state = progress(seen, verdict.site is not None or (verdict.unknown and seen.started), now)
    conditions = (verdict.condition, *state.conditions)
    over = state.phase in (AgentPhase.FINISHED, AgentPhase.FAILED)
    leave = 0.0 if over else _leave(seen, now)
    actions = tuple(_stops(seen) if over else _moves(seen, verdict, settings, leave))
    waits = verdict.site is not None and not seen.suspended and state.phase == AgentPhase.STARTING
    return Plan(
        actions,
        tuple(_events(agent, conditions)),
        _status(agent, conditions, _summary(seen, verdict, state), _began(seen, actions), now),
        backoff(_made(seen), now) if waits else leave or None,
    )


def _moves(seen: AgentObservation, verdict: Verdict, settings: Settings, leave: float) -> Iterator[Action]:
    """What leads on to pods, or to none; a trainer that still has leave to end by itself is not stopped."""
    site = verdict.site
    if verdict.unknown and not seen.suspended:
        return
    runs = site is not None and not seen.suspended
    if site is not None and runs and not seen.orphans:
        yield from isolate("children", _missing(seen, site, settings))
    for component in (TRAINER, GUARD):
        if runs or component == GUARD or not leave:
            yield from _suspend(seen, component, not runs)


def _leave(seen: AgentObservation, now: datetime) -> float:
    """Seconds that the trainer has left to end by itself."""
    guard, trainer = seen.job(GUARD), seen.job(TRAINER)
    if (
        guard is None
        or not holds(guard, JobCondition.COMPLETE)
        or trainer is None
        or outcome(trainer, ()) is not None
    ):
        return 0.0
    done = (condition(guard, JobCondition.COMPLETE) or {}).get("lastTransitionTime")
    return max(0.0, LEAVE - (now - moment(done)).total_seconds()) if done else 0.0


def _stops(seen: AgentObservation) -> Iterator[Action]:
    """At the end nothing computes any more. A guard stays until the job is over: it says why there is no answer."""
    yield from _suspend(seen, TRAINER, True)
    yield from _suspend(seen, GUARD, seen.suspended)


def _missing(seen: AgentObservation, site: Site, settings: Settings) -> Iterator[Action]:
    """Network policies come before pods: no pod is ever without."""
    for child in (claim(site), config_map(site), trainer_policy(site), guard_policy(site)):
        if (kind_of(child), child["metadata"]["name"]) not in seen.children:
            yield Apply(child)
    for component, make in ((TRAINER, trainer_job), (GUARD, guard_job)):
        if seen.job(component) is None and component not in seen.previous_pods:
            yield Apply(make(site, settings))


def _suspend(seen: AgentObservation, component: str, suspend: bool) -> Iterator[Action]:
    job = seen.job(component)
    if job is None or is_deleted(job) or outcome(job, ()) is not None:
        return
    if is_suspended(job) != suspend:
        yield Apply(suspension(job, suspend), SUSPENDER, failure_group=component)


def _summary(seen: AgentObservation, verdict: Verdict, state: Progress) -> dict[str, Any]:
    if verdict.unknown and seen.started and state.phase not in (AgentPhase.FINISHED, AgentPhase.FAILED):
        return {"phase": state.phase, "message": verdict.condition.message}
    if state.phase in (AgentPhase.FINISHED, AgentPhase.FAILED) or verdict.site is not None:
        admitted = verdict.condition.message if state.phase == AgentPhase.ADMITTED else state.message
        return {"phase": state.phase, "message": admitted}
    return {"phase": verdict.phase, "message": verdict.condition.message}


def _began(seen: AgentObservation, actions: Sequence[Action]) -> str | None:
    """Fingerprint of the configuration with which guard and trainer began, or now begin."""
    began: str | None = status_of(seen.agent).get("configuration")
    made = [] if seen.rejections else [one.object for one in actions if isinstance(one, Apply)]
    configs = [
        obj for obj in (seen.configuration, *made) if obj is not None and obj["kind"] == CONFIG_MAP.name
    ]
    return began or (fingerprint(configs[0]) if configs else None)


def _status(
    agent: Object,
    conditions: Sequence[Condition],
    summary: Mapping[str, Any],
    began: str | None,
    now: datetime,
) -> dict[str, Any] | None:
    """The operator's part of the status; None where it is there already."""
    status = {
        "observedGeneration": agent["metadata"].get("generation", 0),
        "phase": str(summary["phase"]),
        "message": summary["message"][:MAX_MESSAGE],
        "conditions": as_status(conditions, agent, now),
        **({"configuration": began} if began else {}),
    }
    return None if satisfies(agent.get("status"), status) else status


def _recorded(agent: Object) -> list[Condition]:
    """Conditions as they were written: an end is never taken back, whatever is observed after it."""
    return [
        Condition(found["type"], found["status"], found["reason"], found.get("message", ""))
        for found in agent["status"]["conditions"]
    ]


def _events(agent: Object, conditions: Sequence[Condition]) -> Iterator[Event]:
    """One for each transition that a person would want to know of; Warning where one must act.

    A failure is told by `Failed`, and not once more by `Ready`, which has the same words.
    """
    ends = [found.message for found in conditions if found.type == ConditionType.FAILED]
    for found in conditions:
        if found.type == ConditionType.READY and found.message in ends:
            continue
        before = condition(agent, found.type)
        if before is not None and (before["status"], before["reason"]) == (found.status, found.reason):
            continue
        if found.type == ConditionType.READY and (
            found.reason in _QUIET or (before is None and found.reason == Reason.SUSPENDED)
        ):
            continue
        yield Event(agent, "Warning" if _is_trouble(found) else "Normal", str(found.reason), found.message)


def _is_trouble(found: Condition) -> bool:
    if found.reason in ALARMING:
        return True
    if found.type == ConditionType.READY:
        return found.status != "True" and found.reason not in (Reason.STARTING, Reason.SUSPENDED)
    return found.type == ConditionType.FAILED or found.status == "False"


def _made(seen: AgentObservation) -> Iterator[Object]:
    yield from (child for (kind, _), child in seen.children.items() if kind == JOB)
    yield from (*seen.pods[TRAINER], *seen.pods[GUARD])
