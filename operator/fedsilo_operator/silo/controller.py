"""The silo controller: SiloAgents and the keys of Silos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Cache, Cluster, NotFound
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import (
    AGENT,
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    EVENT,
    JOB,
    NETWORK_POLICY,
    POD,
    SECRET,
    SILO_AGENT,
    SILO_KIND,
    Object,
    Ref,
    labels_of,
    ref_of,
    uid_of,
)
from fedsilo_operator.pods import alive, ending, running
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.executor import carry_out
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.settings import Settings
from fedsilo_operator.silo import keys, plan
from fedsilo_operator.silo.observe import AgentObservation, observe, silo_of
from fedsilo_operator.workloads.agent import AGENT_COMPONENT, GUARD, TRAINER
from fedsilo_operator.workloads.pod import is_suspended

CHILDREN = f"{COMPONENT} in ({AGENT_COMPONENT},{GUARD},{TRAINER})"


class SiloController:
    """Reconciles SiloAgents and Silos.

    :param cache: what the watches below have seen.
    :param now: the time, for conditions and waits.
    """

    name = "silo"

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
        """What wakes it: agents, Silos, and whatever an agent consists of."""
        children = (JOB, POD, CONFIG_MAP, NETWORK_POLICY, CLAIM)
        return (
            Watch(SILO_AGENT, "", _itself),
            Watch(SILO_KIND, "", self._of_silo),
            *(Watch(kind, CHILDREN, _agent_of) for kind in children),
        )

    async def reconcile(self, key: Key) -> float | None:
        """Bring one agent, or one silo's key, to where it should be."""
        if key.kind == SILO_KIND:
            return await self._key(key.ref)
        seen = observe(self._cache, key.ref)
        if seen is None:
            return None
        decided = plan.plan(await self._with_events(seen), self._now(), self._settings)
        await carry_out(decided, seen.agent, self._cluster)
        return decided.look_again

    async def _key(self, ref: Ref) -> float | None:
        silo = self._cache.get(SILO_KIND, ref)
        if silo is None:
            return None
        try:
            secret = await self._cluster.get(SECRET, Ref(ref.namespace, SIGNING_KEY))
        except NotFound:
            secret = None
        decided = keys.plan(keys.KeyObservation(silo, secret), self._now(), SigningKey.generate)
        await carry_out(decided, silo, self._cluster)
        return decided.look_again

    async def _with_events(self, seen: AgentObservation) -> AgentObservation:
        """The observation with the Events about what does not run: some troubles are told nowhere else."""
        about = [uid_of(obj) for component in (TRAINER, GUARD) for obj in _waiting(seen, component)]
        listings = [
            await self._cluster.list(
                EVENT, namespace=seen.agent["metadata"]["namespace"], fields=f"{_UID}={uid}"
            )
            for uid in about
        ]
        return replace(seen, events=tuple(event for listing in listings for event in listing.items))

    def _of_silo(self, silo: Object) -> Iterator[Key]:
        ref = ref_of(silo)
        yield Key(SILO_KIND, ref)
        for agent in self._cache.select(SILO_AGENT, namespace=ref.namespace):
            if silo_of(agent) == ref:
                yield Key(SILO_AGENT, ref_of(agent))


_UID = "involvedObject.uid"


def _waiting(seen: AgentObservation, component: str) -> Iterator[Object]:
    """A Job without a pod, or a pod that is on a node and does not run: a pod itself says why it is on none."""
    job, pods = seen.job(component), seen.pods[component]
    if job is None or is_suspended(job) or ending(job, ()) is not None or running(pods):
        return
    if not alive(pods):
        yield job
    yield from (pod for pod in pods if alive([pod]) and pod["spec"].get("nodeName"))


def _itself(obj: Object) -> Iterable[Key]:
    return (Key(SILO_AGENT, ref_of(obj)),)


def _agent_of(child: Object) -> Iterable[Key]:
    name = labels_of(child).get(AGENT)
    return () if name is None else (Key(SILO_AGENT, Ref(ref_of(child).namespace, name)),)
