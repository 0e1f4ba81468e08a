"""What the job controller observes, read together at one point in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, condition, holds, status_of, uid_of
from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.diagnosis.pods import alive
from fedsilo_operator.names import agent_name, aggregator_name, claim_name
from fedsilo_operator.objects import (
    AGENT,
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    FEDERATED_JOB,
    JOB,
    JOB_UID,
    NETWORK_POLICY,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    controller_uid,
    is_deleted,
    is_namesakes,
    labels_of,
    owns,
    ref_of,
    silo_of,
)
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.workloads.aggregator import AGGREGATOR
from fedsilo_operator.workloads.disruption import is_drained

OWNED_KINDS = (
    *(SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SERVICE, NETWORK_POLICY, CONFIG_MAP, JOB, DISRUPTION_BUDGET),
)
"""What the job owns, one of each, all of one name. Its Secret cannot be observed."""


@dataclass(frozen=True)
class JobObservation:
    """A job and everything that decides what becomes of it.

    :param silos: the Silos that the job could mean: of a name in its references, or all where it has a selector.
    :param agents: the job's SiloAgents by silo.
    :param children: the aggregator's objects by kind, the claim included.
    :param orphans: objects under a name of this job's that belong to an earlier job of the same name.
    :param claim_conflict: whether a claim under the name of this job's is not this job's. A claim is never deleted.
    :param pods: those that the aggregator's Job made.
    :param previous_pod: whether a pod of an earlier Job is still there, which may write to the volume.
    :param events: Events about the aggregator's Job and pods, as far as they matter.
    :param rejections: what the API server rejected in this very reconcile.
    :param budgets: by namespace and name, those by which evictions ask before they move aggregator or agents.
    :param agent_pods: pods of guards and trainers by agent.
    :param drained_nodes: those with a pod of the job that somebody empties.
    :param other_jobs: all other jobs, where they matter: until all agents of this one run.
    """

    job: Object
    silos: tuple[Object, ...] = ()
    agents: Mapping[Ref, Object] = field(default_factory=dict)
    children: Mapping[Kind, Object] = field(default_factory=dict)
    orphans: tuple[Object, ...] = ()
    claim_conflict: bool = False
    pods: tuple[Object, ...] = ()
    previous_pod: bool = False
    events: tuple[Object, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    budgets: Mapping[Ref, Object] = field(default_factory=dict)
    agent_pods: Mapping[Ref, tuple[Object, ...]] = field(default_factory=dict)
    drained_nodes: frozenset[str] = frozenset()
    other_jobs: tuple[Object, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether the job has come to its end, which nothing takes back."""
        return holds(self.job, ConditionType.COMPLETE) or holds(self.job, ConditionType.FAILED)

    @property
    def has_started(self) -> bool:
        """Whether the silos are settled: agents were resumed, or will be at once."""
        return CONFIG_MAP in self.children or "startTime" in status_of(self.job)


def observe(cache: Cache, ref: Ref) -> JobObservation | None:
    """The job as the caches have it, Events apart; None when there is no such job."""
    job = cache.get(FEDERATED_JOB, ref)
    if job is None:
        return None
    uid = uid_of(job)
    name = Ref(ref.namespace, aggregator_name(ref))
    found = {kind: child for kind in OWNED_KINDS if (child := cache.get(kind, name)) is not None}
    mine = {kind: child for kind, child in found.items() if owns(job, child)}
    claim = cache.get(CLAIM, Ref(ref.namespace, claim_name(ref, uid)))
    if claim is not None and labels_of(claim).get(JOB_UID) == uid:
        mine[CLAIM] = claim
    agents = [agent for agent in cache.select(SILO_AGENT, labels={JOB_UID: uid}) if _is_ours(agent, job)]
    everywhere = list(cache.select(POD, labels={JOB_UID: uid}))
    pods = [
        pod
        for pod in everywhere
        if ref_of(pod).namespace == ref.namespace and labels_of(pod).get(COMPONENT) == AGGREGATOR
    ]
    made = tuple(pod for pod in pods if JOB in mine and owns(mine[JOB], pod))
    return JobObservation(
        job=job,
        silos=_silos(job, cache.select(SILO_KIND)),
        agents={silo_of(agent): agent for agent in sorted(agents, key=ref_of)},
        children=mine,
        orphans=tuple(child for child in found.values() if is_namesakes(job, child)),
        claim_conflict=claim is not None and CLAIM not in mine,
        pods=made,
        previous_pod=alive([pod for pod in pods if pod not in made]),
        budgets=_budgets(cache, uid),
        agent_pods=_agent_pods(everywhere),
        drained_nodes=_drained_nodes(cache, everywhere),
        other_jobs=_other_jobs(cache, job),
    )


def _budgets(cache: Cache, uid: str) -> dict[Ref, Object]:
    """Disruption budgets of job and agents, and of an earlier agent of the same name: anybody can set a label alone."""
    found = cache.select(DISRUPTION_BUDGET, labels={JOB_UID: uid})
    return {ref_of(budget): budget for budget in found if controller_uid(budget) is not None}


def _agent_pods(pods: Iterable[Object]) -> dict[Ref, tuple[Object, ...]]:
    found: defaultdict[Ref, list[Object]] = defaultdict(list)
    for pod in pods:
        if AGENT in labels_of(pod):
            found[Ref(ref_of(pod).namespace, labels_of(pod)[AGENT])].append(pod)
    return {agent: tuple(each) for agent, each in found.items()}


def _drained_nodes(cache: Cache, pods: Iterable[Object]) -> frozenset[str]:
    names = {pod["spec"].get("nodeName", "") for pod in pods if alive([pod])}
    nodes = {name: cache.get(NODE, Ref("", name)) for name in names}
    return frozenset(name for name, node in nodes.items() if node is not None and is_drained(node))


def _other_jobs(cache: Cache, job: Object) -> tuple[Object, ...]:
    """The jobs with which this one competes, unless all its agents run or it is over."""
    settled = (ConditionType.SILOS_READY, ConditionType.COMPLETE, ConditionType.FAILED)
    if not condition(job, ConditionType.ACCEPTED) or any(holds(job, name) for name in settled):
        return ()
    return tuple(other for other in cache.select(FEDERATED_JOB) if uid_of(other) != uid_of(job))


def _is_ours(agent: Object, job: Object) -> bool:
    """Whether the job controller made it: a label alone can be set by anybody."""
    silo = silo_of(agent)
    name = agent_name(ref_of(job), uid_of(job), silo)
    return agent["spec"]["job"]["uid"] == uid_of(job) and ref_of(agent) == Ref(silo.namespace, name)


def _silos(job: Object, silos: Iterable[Object]) -> tuple[Object, ...]:
    wanted = job["spec"].get("silos") or {}
    names = {ref.get("name") for ref in wanted.get("refs") or ()}
    found = [
        silo
        for silo in silos
        if not is_deleted(silo) and (wanted.get("selector") or silo["metadata"]["name"] in names)
    ]
    return tuple(sorted(found, key=ref_of))
