"""The job controller reconciles FederatedJobs, and SiloAgents whose job is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.observed import Object, holds, status_of, uid_of
from fedsilo_operator.cluster.interface import Cache, Cluster, NotFound
from fedsilo_operator.diagnosis.events import events_about, needs_events
from fedsilo_operator.diagnosis.pods import coalesce_delay
from fedsilo_operator.job.observe import OWNED_KINDS, observe
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.objects import (
    CLAIM,
    COMPONENT,
    DISRUPTION_BUDGET,
    FEDERATED_JOB,
    JOB,
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_UID,
    MANAGED_BY,
    MANAGER,
    NODE,
    POD,
    SILO_AGENT,
    SILO_KIND,
    Ref,
    is_deleted,
    labels_of,
    ref_of,
)
from fedsilo_operator.plan import Plan
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.executor import carry_out
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.agent import AGENT_COMPONENT, CHILD_SELECTOR
from fedsilo_operator.workloads.aggregator import AGGREGATOR
from fedsilo_operator.workloads.disruption import is_drained

CHILDREN = f"{MANAGED_BY}={MANAGER},{COMPONENT}={AGGREGATOR}"
AGENT_BUDGETS = f"{MANAGED_BY}={MANAGER},{COMPONENT}={AGENT_COMPONENT}"

PROGRESS_SECONDS = 5.0
"""Longest time until a job's status says how far an agent is, while the others are elsewhere: each of its steps would
otherwise be a write of the whole status, as often as the job has silos."""


class JobController:
    """The reconciler of FederatedJobs, and of SiloAgents whose job is gone.

    :param cache: what the watches below have seen.
    :param now: the time, for conditions and the time to live.
    """

    name = "job"

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        settings: Settings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._settings = settings
        self._now = now

    def watches(self) -> Sequence[Watch]:
        """Watches that trigger a reconcile, of jobs, silos that they name, their agents, aggregators'
        objects, and what drains concern."""
        return (
            Watch(FEDERATED_JOB, "", lambda job: (Key(FEDERATED_JOB, ref_of(job)),)),
            Watch(SILO_KIND, "", self._of_silo),
            Watch(SILO_AGENT, "", _job_of, self._patience),
            *(Watch(kind, CHILDREN, _job_of, coalesce_delay) for kind in (*OWNED_KINDS, CLAIM, POD)),
            Watch(DISRUPTION_BUDGET, AGENT_BUDGETS, _job_of),
            Watch(NODE, "", self._of_drained_node),
            Watch(POD, CHILD_SELECTOR, self._of_agent_pod),
        )

    async def reconcile(self, key: Key) -> float | None:
        """Advance one job by a step."""
        await self._sweep(key.ref)
        seen = observe(self._cache, key.ref)
        if seen is None:
            return None
        waiting = () if seen.is_finished else needs_events(seen.children.get(JOB), seen.pods)
        seen = replace(seen, events=await events_about(waiting, self._cluster))

        def decide(rejections: tuple[Rejection, ...]) -> Plan:
            return reconcile(replace(seen, rejections=rejections), self._now(), self._settings)

        return await carry_out(decide, seen.job, self._cluster)

    async def _sweep(self, ref: Ref) -> None:
        """Delete agents of a job that was forced out of the cluster, past its finalizer.

        The caches of jobs and agents may be of different age, so the cluster itself is asked.
        """
        job = self._cache.get(FEDERATED_JOB, ref)
        labels = {JOB_NAMESPACE: ref.namespace, JOB_NAME: ref.name}
        known = None if job is None else uid_of(job)
        orphans = [
            agent
            for agent in self._cache.select(SILO_AGENT, labels=labels)
            if labels_of(agent).get(JOB_UID) != known
        ]
        if not orphans:
            return
        try:
            known = uid_of(await self._cluster.get(FEDERATED_JOB, ref))
        except NotFound:
            known = None
        for agent in orphans:
            if labels_of(agent).get(JOB_UID) != known:
                await self._cluster.delete(SILO_AGENT, ref_of(agent), uid=uid_of(agent))

    def _patience(self, before: Object | None, after: Object | None) -> float:
        """An agent's step waits until the last one has made it, which is when the job goes on; a failure does not."""
        if before is None or after is None or is_deleted(after):
            return 0.0
        phase = status_of(after).get("phase")
        if phase == AgentPhase.FAILED:
            return 0.0
        agents = self._cache.select(SILO_AGENT, labels={JOB_UID: labels_of(after).get(JOB_UID, "")})
        together = all(status_of(agent).get("phase") == phase for agent in agents)
        return 0.0 if together else PROGRESS_SECONDS

    def _of_drained_node(self, node: Object) -> Iterator[Key]:
        """Jobs with a pod on a node that somebody empties, or has emptied."""
        if is_drained(node):
            name = ref_of(node).name
            for pod in self._cache.select(POD):
                if pod["spec"].get("nodeName") == name:
                    yield from _job_of(pod)

    def _of_agent_pod(self, pod: Object) -> Iterable[Key]:
        """The job of a pod that leaves a drained node; what else becomes of agents' pods, the agents report."""
        node = self._cache.get(NODE, Ref("", pod["spec"].get("nodeName", "")))
        return _job_of(pod) if node is not None and is_drained(node) else ()

    def _of_silo(self, silo: Object) -> Iterator[Key]:
        """Jobs that are not over and could mean this silo."""
        for job in self._cache.select(FEDERATED_JOB):
            if _may_mean(job, silo):
                yield Key(FEDERATED_JOB, ref_of(job))


def _may_mean(job: Object, silo: Object) -> bool:
    if holds(job, ConditionType.COMPLETE) or holds(job, ConditionType.FAILED):
        return False
    wanted = job["spec"].get("silos") or {}
    names = {ref.get("name") for ref in wanted.get("refs") or ()}
    return bool(wanted.get("selector")) or silo["metadata"]["name"] in names


def _job_of(child: Object) -> Iterable[Key]:
    labels = labels_of(child)
    if JOB_NAME not in labels or JOB_NAMESPACE not in labels:
        return ()
    return (Key(FEDERATED_JOB, Ref(labels[JOB_NAMESPACE], labels[JOB_NAME])),)
