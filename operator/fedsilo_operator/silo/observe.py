"""What the silo controller looks at, taken together at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.objects import (
    AGENT,
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    JOB,
    JOB_UID,
    NETWORK_POLICY,
    POD,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Object,
    Ref,
    ref_of,
    uid_of,
)
from fedsilo_operator.workloads.agent import GUARD, TRAINER

Child = tuple[Kind, str]
"""Kind and name of a child; all are in the agent's namespace."""


@dataclass(frozen=True)
class AgentObservation:
    """A SiloAgent and everything that decides what becomes of it.

    :param silo: None when there is no such Silo.
    :param children: what the agent owns, and its claim, which nobody owns.
    :param strangers: objects under a child's name that belong to another, such as an earlier agent of that name.
    :param pods: by component, those that its Job made.
    :param leftovers: components that have a pod of an earlier Job, which may still write to the volume.
    :param events: Events about Jobs and pods, as far as they matter.
    """

    agent: Object
    silo: Object | None = None
    children: Mapping[Child, Object] = field(default_factory=dict)
    strangers: tuple[Object, ...] = ()
    pods: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    leftovers: frozenset[str] = frozenset()
    events: tuple[Object, ...] = ()

    @property
    def suspended(self) -> bool:
        """Whether the job controller wants no pods."""
        return bool(self.agent["spec"].get("suspend", False))

    @property
    def started(self) -> bool:
        """Whether the agent has ever had more than a name."""
        return any(kind in (CONFIG_MAP, JOB) for kind, _ in self.children)

    def job(self, component: str) -> Object | None:
        """The Job of guard or trainer."""
        return self.children.get((JOB, child_name(self.agent, component)))


def child_name(agent: Object, component: str) -> str:
    """Name of guard's or trainer's Job and network policy."""
    return f"{agent['metadata']['name']}-{component}"


def silo_of(agent: Object) -> Ref:
    """The silo that an agent is for."""
    silo = agent["spec"]["silo"]
    return Ref(silo.get("namespace", "default"), silo["name"])


def observe(cache: Cache, ref: Ref) -> AgentObservation | None:
    """The agent as the caches have it, Events apart; None when there is no such agent."""
    agent = cache.get(SILO_AGENT, ref)
    if agent is None:
        return None
    names = [child_name(agent, component) for component in (TRAINER, GUARD)]
    places = [(CONFIG_MAP, ref.name), (CLAIM, ref.name)]
    places += [(kind, name) for kind in (NETWORK_POLICY, JOB) for name in names]
    found = {
        place: child
        for place in places
        if (child := cache.get(place[0], Ref(ref.namespace, place[1]))) is not None
    }
    mine = {place: child for place, child in found.items() if place[0] == CLAIM or _owns(agent, child)}
    pods = {component: _pods(cache, agent, component) for component in (TRAINER, GUARD)}
    made = {
        component: tuple(pod for pod in pods[component] if job is not None and _owns(job, pod))
        for component in pods
        for job in (mine.get((JOB, child_name(agent, component))),)
    }
    return AgentObservation(
        agent=agent,
        silo=cache.get(SILO_KIND, silo_of(agent)),
        children=mine,
        strangers=tuple(child for place, child in found.items() if place not in mine),
        pods=made,
        leftovers=frozenset(name for name in pods if _alive(set(map(ref_of, made[name])), pods[name])),
    )


def _pods(cache: Cache, agent: Object, component: str) -> tuple[Object, ...]:
    labels = {
        JOB_UID: agent["spec"]["job"]["uid"],
        AGENT: agent["metadata"]["name"],
        COMPONENT: component,
    }
    found = cache.select(POD, namespace=agent["metadata"]["namespace"], labels=labels)
    return tuple(sorted(found, key=ref_of))


def _owns(owner: Object, child: Object) -> bool:
    owners = child["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == uid_of(owner) for reference in owners)


def _alive(made: set[Ref], pods: Iterable[Object]) -> bool:
    phases = [(pod.get("status") or {}).get("phase") for pod in pods if ref_of(pod) not in made]
    return any(phase not in ("Succeeded", "Failed") for phase in phases)
