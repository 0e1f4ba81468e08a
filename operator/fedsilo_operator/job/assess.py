"""The interpretation of an observed job: done here, once, for actions, conditions and status alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis
from fedsilo.api.job import FederatedJob
from fedsilo.api.lost_silos import lost_silos_text
from fedsilo.api.observed import Object, condition, holds, status_of, uid_of
from fedsilo.api.text import count_text
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import alive, running
from fedsilo_operator.job.blockers import blocker
from fedsilo_operator.job.checks import faults, parse
from fedsilo_operator.job.decisions import ExpectedProposal
from fedsilo_operator.job.drains import eviction_units
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.original_spec import changed_spec, original_job
from fedsilo_operator.job.participants import Participant, candidates, initial_participants, reports_admitted
from fedsilo_operator.job.silo_keys import silo_keys
from fedsilo_operator.job.state import AggregatorState, JobState, Stage
from fedsilo_operator.job.trust import read_trust
from fedsilo_operator.messages import join_lines
from fedsilo_operator.objects import DISRUPTION_BUDGET, JOB, JOB_UID, SERVICE_ACCOUNT, SILO_AGENT, is_deleted
from fedsilo_operator.reasons import PROGRESS_REASONS, Reason
from fedsilo_operator.rejections import diagnosis_of
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import claim_ref

VERDICT_SECONDS = 120.0
"""Time that the aggregator gets to say what is wrong with a job that trainers could not run: it builds the same network
without data, or its silos' guards report to it. Meanwhile other trainers may hold GPUs."""

JOB_FAULTS = frozenset({Reason.MANIFEST_INVALID, Reason.METHOD_ERROR})
"""Reasons of a trainer that are most likely a fault of the job, whose words are in the institution's log."""


def assess(seen: JobObservation, settings: Settings, now: datetime) -> JobState:
    """Where the job stands."""
    state = JobState(
        observed=seen.job,
        stage=Stage.DELETED,
        agents=seen.agents,
        aggregator=_aggregator(seen, now),
        has_started=seen.has_started,
        suspended=bool(seen.job["spec"].get("suspend", False)),
        budgets=tuple(seen.budgets.values()),
    )
    if is_deleted(seen.job):
        return state
    if seen.is_finished:
        return replace(state, stage=Stage.FINISHED)
    parsed = parse(seen.job)
    if (original := original_job(seen)) is not None:
        return replace(
            _with_silos(state, seen, original, settings, now), changed=changed_spec(parsed.job, original)
        )
    lines = [fault.line() for fault in parsed.faults]
    if parsed.job is None and seen.has_started:
        # Only another version can read it: nothing is decided about it except the outcome of its aggregator.
        end = _end_of_aggregator(state)
        return _ending(state, end) if end else replace(state, stage=Stage.UNREADABLE, faults=tuple(lines))
    if parsed.job is not None and not seen.has_started:
        lines = [fault.line() for fault in faults(parsed.job)]
    if parsed.job is None or lines:
        return _ending(state, _failed_condition(Diagnosis(Reason.MANIFEST_INVALID, "\n".join(lines))))
    return _with_silos(state, seen, parsed.job, settings, now)


def _with_silos(
    state: JobState, seen: JobObservation, job: FederatedJob, settings: Settings, now: datetime
) -> JobState:
    """The state of a job that can be read: it starts when it can, unless it is suspended."""
    keys = silo_keys(seen, job)
    trust = read_trust(seen, job, keys, settings)
    asked = not seen.has_started and any(map(reports_admitted, seen.agents.values()))
    question = ExpectedProposal.of(trust, seen.job, job, settings) if asked else None
    silos = candidates(seen, keys, trust.distrusted, question)
    rejection = _rejection(seen)
    blocked = None
    if not seen.has_started:
        named = [ref for ref, _ in keys]
        blocked = blocker(seen, job, named) or state.aggregator.claim_conflict or rejection
    end = _end(state, blocked, rejection)
    if end is not None:
        return _ending(state, end)
    verdict = None
    if seen.has_started and (lost := _lost_quorum(job, silos)) is not None:
        verdict = _verdict_seconds(state, silos, now)
        if verdict is None:
            return _ending(state, _failed_condition(lost))
    if seen.has_started:
        stage, starting = Stage.STARTED, silos
    else:
        starting = initial_participants(job, silos) if blocked is None else ()
        stage = Stage.STARTING if starting and not state.suspended else Stage.ADMITTING
    return replace(
        state,
        stage=stage,
        job=job,
        trust=trust,
        candidates=silos,
        starters=starting,
        blocker=blocked,
        rejection=rejection,
        verdict_seconds=verdict,
        units=eviction_units(seen, starting, state.aggregator, now) if seen.has_started else (),
    )


def _aggregator(seen: JobObservation, now: datetime) -> AggregatorState:
    batch = seen.children.get(JOB)
    runs = running(seen.pods)
    pod = diagnose(batch, seen.pods, seen.events, now)
    return AggregatorState(
        children=seen.children,
        orphans=seen.orphans,
        previous_pod=seen.previous_pod,
        running=runs,
        has_run=holds(seen.job, ConditionType.RUNNING),
        outlived_account=_outlived_account(seen.children.get(SERVICE_ACCOUNT), seen.pods),
        waiting=() if batch is None or runs else (batch, *seen.pods),
        diagnosis=pod.diagnosis,
        patience_seconds=pod.patience_seconds,
        outcome=outcome(batch, seen.pods),
        claim_conflict=_claim_conflict(seen),
    )


def _outlived_account(account: Object | None, pods: Sequence[Object]) -> bool:
    """Whether a pod's token died with the account that was there before.

    The kubelet would get it another one within the hour; until then no progress is reported, and no end.
    """
    return account is not None and any(
        pod["metadata"]["creationTimestamp"] < account["metadata"]["creationTimestamp"]
        for pod in pods
        if alive([pod])
    )


def _claim_conflict(seen: JobObservation) -> Diagnosis | None:
    """What is wrong when a claim that is not this job's has the name of its volume."""
    if not seen.claim_conflict:
        return None
    problem = f"has the name of this job's volume but not its label {JOB_UID}={uid_of(seen.job)}"
    remedy = (
        "Delete it if nobody needs it, or delete the job and create it again: its claim then has another name"
    )
    text = f"PersistentVolumeClaim {claim_ref(seen.job)} {problem}, so it may hold the work of another. {remedy}."
    return Diagnosis(Reason.VOLUME_MISSING, text)


def _rejection(seen: JobObservation) -> Diagnosis | None:
    """What the API server rejects of the job's own objects; a rejected agent concerns its silo only, unless no API
    server takes it, and a rejected budget whoever drains nodes.
    """
    others = (SILO_AGENT, DISRUPTION_BUDGET)
    found = [one for one in seen.rejections if one.kind not in others or one.diagnosis.permanent]
    return diagnosis_of(found)


def _ending(state: JobState, end: Condition) -> JobState:
    return replace(state, stage=Stage.ENDING, end=end)


def _end(state: JobState, blocked: Diagnosis | None, rejection: Diagnosis | None) -> Condition | None:
    """The condition Complete or Failed, once the aggregator has ended or can never run."""
    for known in (blocked, rejection):
        if known is not None and known.permanent:
            return _failed_condition(known)
    if (end := _end_of_aggregator(state)) is not None:
        return end
    diagnosis = state.aggregator.diagnosis
    return _failed_condition(diagnosis) if diagnosis is not None and diagnosis.permanent else None


def _end_of_aggregator(state: JobState) -> Condition | None:
    found = state.aggregator.outcome
    if found is None:
        return None
    if found.succeeded:
        without = lost_silos_text(status_of(state.observed).get("silos") or ())
        message = f"The model is in PersistentVolumeClaim {claim_ref(state.observed).name}."
        if without is not None:
            message = f"The job {without}. {message}"
        return Condition(ConditionType.COMPLETE, "True", Reason.COMPLETE, message)
    before = _earlier_problem(state.observed, found.diagnosis)
    return _failed_condition(replace(found.diagnosis, message=found.diagnosis.message + before))


def _earlier_problem(job: Object, diagnosis: Diagnosis) -> str:
    """What was wrong before the tries were used up, where no pod is left that shows it."""
    before = condition(job, ConditionType.RUNNING)
    if diagnosis.reason != Reason.BACKOFF_LIMIT_EXCEEDED or before is None or before["status"] == "True":
        return ""
    return "" if before["reason"] in PROGRESS_REASONS else f" Before that: {before['message']}"


def _verdict_seconds(state: JobState, silos: Sequence[Participant], now: datetime) -> float | None:
    """Time left in which the aggregator may say why trainers could not run the job; None where it is not asked.

    No word of a trainer gets to the consortium past the guard. What is the job's fault, the aggregator finds in the job
    alone, or the guards report it as far as their institutions permit.
    """
    ends = [
        condition(silo.agent or {}, ConditionType.FAILED) or {} for silo in silos if silo.failure is not None
    ]
    ends = [end for end in ends if end.get("reason") in JOB_FAULTS and "lastTransitionTime" in end]
    since = [parse_timestamp(end["lastTransitionTime"]) for end in ends]
    left = VERDICT_SECONDS - (now - min(since)).total_seconds() if since else 0.0
    return None if left <= 0 or state.suspended else left


def _lost_quorum(job: FederatedJob, silos: Sequence[Participant]) -> Diagnosis | None:
    """Why too few silos are left, naming each that failed; None while there are enough."""
    failed = [silo for silo in silos if silo.failure is not None]
    participation = job.spec.participation
    left, quorum = len(silos) - len(failed), participation.quorum(participation.sample_size(len(silos)))
    if not failed or left >= quorum:
        return None
    lines = [f"Silo {silo.ref} failed: {silo.failure}" for silo in failed]
    text = (
        f"{left} of {count_text(len(silos), 'silo')} left, the quorum is {quorum}. {join_lines(lines, ' ')}"
    )
    return Diagnosis(Reason.QUORUM_LOST, text)


def _failed_condition(diagnosis: Diagnosis) -> Condition:
    return Condition.of(ConditionType.FAILED, "True", diagnosis)
