"""What the silo controller observes of one SiloAgent, read together at one point in time and not interpreted yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsilo.api.observed import Object
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.diagnosis.pods import alive
from fedsilo_operator.names import ledgers_labels, ledgers_name
from fedsilo_operator.objects import (
    AGENT,
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    JOB,
    JOB_UID,
    MANAGED_BY,
    MANAGER,
    NETWORK_POLICY,
    POD,
    SILO_AGENT,
    SILO_KIND,
    Child,
    Ref,
    is_namesakes,
    labels_of,
    owns,
    ref_of,
    silo_of,
)
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.silo.budgets import NO_BUDGETS, BudgetObservation, observe_budgets
from fedsilo_operator.workloads.agent import GUARD, POLICY, TRAINER


@dataclass(frozen=True)
class AgentObservation:
    """A SiloAgent and everything that decides what becomes of it.

    :param silo: None when there is no such Silo.
    :param children: what the agent owns, and its claim, which has no owner.
    :param orphans: objects under a child's name that an earlier agent of this name has left, and that go with it.
    :param pods: by component, those that its Job made.
    :param previous_pods: components that have a pod of an earlier Job, which may still write to the volume.
    :param events: Events about Jobs and pods, as far as they matter.
    :param rejections: what the API server rejected in this very reconcile.
    :param budgets: what says what is spent of the Silo's privacy budgets.
    :param signing_key: the silo's, read only where a decision has to be signed, and where there is one.
    """

    agent: Object
    silo: Object | None = None
    children: Mapping[Child, Object] = field(default_factory=dict)
    orphans: tuple[Object, ...] = ()
    pods: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    previous_pods: frozenset[str] = frozenset()
    events: tuple[Object, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    budgets: BudgetObservation = NO_BUDGETS
    signing_key: SigningKey | None = None

    @property
    def suspended(self) -> bool:
        """Whether the job controller wants no pods."""
        return bool(self.agent["spec"].get("suspend", False))

    @property
    def started(self) -> bool:
        """Whether the agent has ever had more than a claim and network policies."""
        return any(kind in (CONFIG_MAP, JOB) for kind, _ in self.children)

    @property
    def current_policy(self) -> Object | None:
        """The ConfigMap of the policy as it is now."""
        return self.children.get((CONFIG_MAP, child_name(self.agent, POLICY)))

    @property
    def files(self) -> Mapping[str, str] | None:
        """What guard and trainer read, in its ConfigMap."""
        found = self.children.get((CONFIG_MAP, self.agent["metadata"]["name"]))
        return None if found is None else found["data"]

    def image(self, component: str) -> str | None:
        """The image with which a component was made, if it was: the operator's own may be a newer one since."""
        job = self.job(component)
        if job is None:
            return None
        return str(job["spec"]["template"]["spec"]["containers"][0]["image"])

    def job(self, component: str) -> Object | None:
        """The Job of guard or trainer."""
        return self.children.get((JOB, child_name(self.agent, component)))


def child_name(agent: Object, component: str) -> str:
    """Name of guard's or trainer's Job and network policy, and of the ConfigMap of the present policy."""
    return f"{agent['metadata']['name']}-{component}"


def observe(cache: Cache, ref: Ref) -> AgentObservation | None:
    """The agent as the caches have it, without Events; None when there is no such agent."""
    agent = cache.get(SILO_AGENT, ref)
    if agent is None:
        return None
    names = [child_name(agent, component) for component in (TRAINER, GUARD)]
    places = [(CONFIG_MAP, ref.name), (CONFIG_MAP, child_name(agent, POLICY)), (CLAIM, ref.name)]
    places += [(CLAIM, ledgers_name(silo_of(agent).name))]
    places += [(kind, name) for kind in (NETWORK_POLICY, JOB) for name in names]
    found = {
        place: child
        for place in places
        if (child := cache.get(place[0], Ref(ref.namespace, place[1]))) is not None
    }
    mine = {place: child for place, child in found.items() if _is_child(agent, child)}
    pods = {component: _pods(cache, agent, component) for component in (TRAINER, GUARD)}
    made = {
        component: tuple(pod for pod in pods[component] if job is not None and owns(job, pod))
        for component in pods
        for job in (mine.get((JOB, child_name(agent, component))),)
    }
    silo = cache.get(SILO_KIND, silo_of(agent))
    return AgentObservation(
        agent=agent,
        silo=silo,
        children=mine,
        orphans=tuple(child for child in found.values() if is_namesakes(agent, child)),
        pods=made,
        previous_pods=frozenset(
            name for name in pods if alive([pod for pod in pods[name] if pod not in made[name]])
        ),
        budgets=observe_budgets(cache, silo, silo_of(agent)),
    )


def _pods(cache: Cache, agent: Object, component: str) -> tuple[Object, ...]:
    labels = {
        JOB_UID: agent["spec"]["job"]["uid"],
        AGENT: agent["metadata"]["name"],
        COMPONENT: component,
    }
    found = cache.select(POD, namespace=agent["metadata"]["namespace"], labels=labels)
    return tuple(sorted(found, key=ref_of))


def _is_child(agent: Object, child: Object) -> bool:
    """Whether the child is this agent's, or its Silo's: a claim has no owner, and so is known by its labels."""
    if child["kind"] != CLAIM.name:
        return owns(agent, child)
    labels, silo = labels_of(child), silo_of(agent).name
    if ref_of(child).name == ledgers_name(silo):
        return ledgers_labels(silo).items() <= labels.items()
    wanted = {MANAGED_BY: MANAGER, JOB_UID: agent["spec"]["job"]["uid"], AGENT: agent["metadata"]["name"]}
    return wanted.items() <= labels.items()
