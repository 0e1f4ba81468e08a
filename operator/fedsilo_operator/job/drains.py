"""The parts of a job that a drain moves, as they were observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, condition, holds, uid_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.diagnosis.pods import alive
from fedsilo_operator.job.eviction import EvictionUnit
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.participants import Participant
from fedsilo_operator.job.state import AggregatorState
from fedsilo_operator.names import agent_labels, aggregator_name, job_labels
from fedsilo_operator.objects import AGENT, COMPONENT, DISRUPTION_BUDGET, JOB_UID, Ref, is_deleted, ref_of
from fedsilo_operator.workloads.agent import AGENT_COMPONENT
from fedsilo_operator.workloads.aggregator import AGGREGATOR


def eviction_units(
    seen: JobObservation, silos: Sequence[Participant], aggregator: AggregatorState, now: datetime
) -> tuple[EvictionUnit, ...]:
    """Agents of this cluster whose part is not over, and the aggregator."""
    found = list(_agents(seen, silos, now))
    if aggregator.may_make(DISRUPTION_BUDGET):
        found.append(_aggregator(seen, aggregator, now))
    return tuple(found)


def _agents(seen: JobObservation, silos: Sequence[Participant], now: datetime) -> Iterator[EvictionUnit]:
    job, uid = ref_of(seen.job), uid_of(seen.job)
    for silo in silos:
        agent = silo.agent
        if agent is None or silo.remote or silo.failure is not None or is_deleted(agent):
            continue
        if holds(agent, ConditionType.FINISHED):
            continue
        ref = ref_of(agent)
        since = None if silo.ready else _loss_time(agent, ConditionType.READY, now)
        yield EvictionUnit(
            ref,
            agent,
            agent_labels(job, uid, silo.ref, AGENT_COMPONENT),
            {JOB_UID: uid, AGENT: ref.name},
            pods=2,
            missing_since=since,
            **_observed_fields(seen, ref, seen.agent_pods.get(ref, ())),
        )


def _aggregator(seen: JobObservation, aggregator: AggregatorState, now: datetime) -> EvictionUnit:
    job, uid = ref_of(seen.job), uid_of(seen.job)
    ref = Ref(job.namespace, aggregator_name(job))
    return EvictionUnit(
        ref,
        seen.job,
        job_labels(job, uid, AGGREGATOR),
        {JOB_UID: uid, COMPONENT: AGGREGATOR},
        pods=1,
        missing_since=None if aggregator.running else _loss_time(seen.job, ConditionType.RUNNING, now),
        **_observed_fields(seen, ref, seen.pods),
    )


def _observed_fields(seen: JobObservation, budget: Ref, pods: Sequence[Object]) -> Mapping[str, Any]:
    living = [pod for pod in pods if alive([pod])]
    return {
        "budget": seen.budgets.get(budget),
        "drained": any(pod["spec"].get("nodeName") in seen.drained_nodes for pod in living),
        "leaving": any(map(is_deleted, living)),
    }


def _loss_time(obj: Object, name: ConditionType, now: datetime) -> datetime:
    """Since when a condition does not hold; since now where it has yet to say so."""
    found = condition(obj, name) or {}
    since = None if found.get("status") == "True" else found.get("lastTransitionTime")
    return now if since is None else parse_timestamp(since)
