"""The next step of a job: a pure function of what was observed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from fedsilo.api.conditions import ConditionType, JobPhase
from fedsilo.api.diagnosis import Condition
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, holds, status_of, uid_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.diagnosis.events import backoff
from fedsilo_operator.job import agents, aggregator, eviction, status
from fedsilo_operator.job.assess import assess
from fedsilo_operator.job.competitors import competitors_of
from fedsilo_operator.job.conditions import active_conditions, final_conditions, unreadable_conditions
from fedsilo_operator.job.next_gang import gang_of, look_again_seconds
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.state import JobState, Stage
from fedsilo_operator.objects import FEDERATED_JOB, FINALIZER, ref_of
from fedsilo_operator.plan import Action, ApplyAction, DeleteAction, Plan, isolate
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import AGGREGATOR

AGENTS_END_SECONDS = 60.0
"""Time in which the agents of a complete job end by themselves, for the aggregator has told them: a guard needs a
moment, and a trainer whose guard is done has half a minute to publish the silo's own model."""


def reconcile(seen: JobObservation, now: datetime, settings: Settings) -> Plan:
    """The next step of a job; nothing when it is settled."""
    # 1. Interpret what was observed, once: everything below reads this value only.
    state = assess(seen, settings, now)

    # 2. A job that is being deleted takes its agents along; no owner reference crosses namespaces.
    if state.stage is Stage.DELETED:
        return _finalize(state)

    # 3. A job that is over stays as it is, until its time to live runs out.
    if state.stage is Stage.FINISHED:
        return _after_completion(state, now)

    # 4. A job whose end has come reports how it ended, and releases its pods where they do not end by themselves.
    if state.end is not None:
        return _finish(state, state.end, now)

    # 5. A job that only another version of the operator can read goes on as it is.
    if state.job is None:
        return _leave_to_another_version(state, now)

    # 6. Every other job is admitted by its silos, started and kept running; all its agents run, or none is asked to.
    gang = gang_of(state, competitors_of(seen.job, seen.other_jobs), now)
    return _reconcile_active(replace(state, gang=gang), state.job, now, settings)


def _reconcile_active(state: JobState, job: FederatedJob, now: datetime, settings: Settings) -> Plan:
    # 1. Delete what an earlier job of this name has left, so that the names are free.
    actions = [*aggregator.orphans(state)]

    # 2. Hold the job until its agents are gone, before there are any.
    actions += _finalizer(state)

    # 3. Make what the aggregator has from the first step to the last; and as soon as the job starts, its
    #    configuration, which records who takes part: whatever happens next, the job starts with them. Nothing starts
    #    without these; after the start, what the API server rejects of them must hold up no silo.
    children = [*aggregator.static_children(state, job, settings)]
    if state.started:
        children += aggregator.configuration(state, job, settings)
    actions += isolate(AGGREGATOR, children) if state.has_started else children

    # 4. Make an agent in each silo, suspended until all may start; resume or suspend those that there are.
    actions += agents.agents(state, job, settings)

    # 5. Run the aggregator as soon as no agent is waited for.
    if state.started:
        actions += isolate(AGGREGATOR, aggregator.workload(state, job, settings))

    # 6. Let drains move one part of the job at a time, from when the aggregator runs: nothing is lost before.
    patience = timedelta(seconds=job.spec.start_seconds)
    units = state.units if state.active and (state.budgets or state.aggregator.running) else ()
    actions += eviction.budget_actions(units, state.budgets, now, patience)

    # 7. Report: the status where it changes, and an Event for each transition.
    wanted = status.document(
        state.observed,
        active_conditions(state),
        status.silos(state),
        started=now if state.started else None,
        gang=state.gang.as_status(),
        now=now,
    )

    # 8. Look again where no watch would report it: why a pod does not run is often only in Events, and time passes for
    #    a job that waits for room, for a pod's trouble that may pass, and for an aggregator that may say what is wrong.
    waiting = state.aggregator.waiting if state.active else ()
    waits = (
        backoff(waiting, now) if waiting else None,
        state.aggregator.patience_seconds if waiting else None,
        state.verdict_seconds,
        look_again_seconds(state.gang, now),
        eviction.look_again_seconds(units),
    )
    return _plan(state, actions, wanted, min((wait for wait in waits if wait is not None), default=None))


def _leave_to_another_version(state: JobState, now: datetime) -> Plan:
    """Plan for a job that this version cannot read: nothing is decided about it, but a person may suspend it."""
    found = unreadable_conditions(state)
    gang = status_of(state.observed).get("gang")
    wanted = status.document(state.observed, found, status.refreshed_entries(state), gang=gang, now=now)
    return _plan(state, _stop_pods(state) if state.suspended else (), wanted)


def _finish(state: JobState, end: Condition, now: datetime) -> Plan:
    """The job is over: its pods go, its objects stay."""
    wanted = status.document(
        state.observed, final_conditions(state, end), status.refreshed_entries(state), ended=now, now=now
    )
    if end.type == ConditionType.COMPLETE:
        return _plan(state, eviction.deletion_actions(state.budgets), wanted, AGENTS_END_SECONDS)
    return _plan(state, _stop_pods(state), wanted)


def _after_completion(state: JobState, now: datetime) -> Plan:
    """Plan for a job that is over: nothing changes but what agents still report, their pods, and its time to live."""
    wanted = status.unchanged_status(state.observed, status.refreshed_entries(state))
    lifetime = _remaining_seconds(state, now, state.observed["spec"].get("ttlSecondsAfterFinished"))
    ending = holds(state.observed, ConditionType.COMPLETE) and agents.any_unsuspended(state)
    patience = _remaining_seconds(state, now, AGENTS_END_SECONDS if ending else None)
    actions = [*eviction.deletion_actions(state.budgets)] if patience else _stop_pods(state)
    if lifetime == 0.0:
        job = DeleteAction(FEDERATED_JOB, ref_of(state.observed), uid_of(state.observed))
        return Plan((*actions, job))
    again = min((wait for wait in (lifetime, patience) if wait), default=None)
    return Plan(tuple(actions), (), status.to_write(state.observed, wanted), again)


def _remaining_seconds(state: JobState, now: datetime, seconds: float | None) -> float | None:
    """What is left of this time since the job's end; None without a time, or where the end has none."""
    over_since = status_of(state.observed).get("completionTime")
    if seconds is None or over_since is None:
        return None
    return max(seconds - (now - parse_timestamp(over_since)).total_seconds(), 0.0)


def _finalize(state: JobState) -> Plan:
    """The job goes when its agents are gone; the volumes stay."""
    if not state.agents:
        held = FINALIZER in _finalizers(state.observed)
        return Plan((ApplyAction(_with_finalizers(state.observed, [])),) if held else ())
    wanted = status.unchanged_status(state.observed, status.refreshed_entries(state)) | {
        "phase": str(JobPhase.TERMINATING)
    }
    return Plan(tuple(agents.deletion_actions(state)), (), status.to_write(state.observed, wanted))


def _plan(
    state: JobState, actions: Iterable[Action], wanted: Object, requeue_after: float | None = None
) -> Plan:
    """The plan, with an Event for each transition."""
    news = status.transition_events(state.observed, wanted)
    return Plan(tuple(actions), news, status.to_write(state.observed, wanted), requeue_after)


def _stop_pods(state: JobState) -> list[Action]:
    """At every end the pods go, at once or after a moment, so that nobody waits for a dead aggregator on a GPU."""
    budgets = eviction.deletion_actions(state.budgets)
    return [*agents.suspension_actions(state), *aggregator.suspension_actions(state), *budgets]


def _finalizer(state: JobState) -> list[Action]:
    held = FINALIZER in _finalizers(state.observed)
    return [] if held else [ApplyAction(_with_finalizers(state.observed, [FINALIZER]))]


def _finalizers(job: Object) -> list[str]:
    return job["metadata"].get("finalizers") or []


def _with_finalizers(job: Object, finalizers: list[str]) -> Object:
    """The operator's part of the job's metadata: this and nothing else."""
    metadata = {key: job["metadata"][key] for key in ("name", "namespace", "uid")}
    metadata |= {"finalizers": finalizers} if finalizers else {}
    return {"apiVersion": FEDERATED_JOB.api, "kind": FEDERATED_JOB.name, "metadata": metadata}
