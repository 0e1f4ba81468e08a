"""The silo controller reconciles SiloAgents and the keys of Silos."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, holds
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Cache, Cluster, NotFound
from fedsilo_operator.diagnosis.events import events_about, needs_events
from fedsilo_operator.diagnosis.pods import SUCCESS_SECONDS, JobCondition, coalesce_delay
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import (
    AGENT,
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    JOB,
    JOB_UID,
    NETWORK_POLICY,
    POD,
    SECRET,
    SILO,
    SILO_AGENT,
    SILO_KIND,
    Ref,
    is_deleted,
    labels_of,
    ref_of,
    silo_of,
)
from fedsilo_operator.plan import Plan
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.executor import carry_out
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo import key_secret, remote, signing_key, succession
from fedsilo_operator.silo.budgets import has_budgets, observe_budgets
from fedsilo_operator.silo.observe import AgentObservation, observe
from fedsilo_operator.silo.reconcile import reconcile
from fedsilo_operator.workloads.agent import CHILD_SELECTOR, GUARD, TRAINER
from fedsilo_operator.workloads.suspension import is_suspended


class SiloController:
    """Reconciles SiloAgents and Silos; those of institutions outside of the cluster are reconciled there.

    :param cache: what the watches below have seen.
    :param now: the time, for conditions and waits.
    """

    name = "silo"

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        settings: SiloSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._settings = settings
        self._now = now
        self._budgets: defaultdict[Ref, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By Silo with privacy budgets: agents are admitted one after the other, each with the ones before in view."""

    def watches(self) -> Sequence[Watch]:
        """Watches that trigger a reconcile, of agents, Silos, and the children and pods of agents."""
        children = (JOB, POD, CONFIG_MAP, NETWORK_POLICY, CLAIM)
        return (
            Watch(SILO_AGENT, "", self._keys_of_agent),
            Watch(SILO_KIND, "", self._keys_of_silo),
            *(Watch(kind, CHILD_SELECTOR, self._keys_of_child, self._patience) for kind in children),
        )

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one agent, or one silo's key."""
        if key.kind == SILO_KIND:
            return await self._reconcile_silo(key.ref)
        agent = self._cache.get(SILO_AGENT, key.ref)
        if agent is not None and self._has_budgets(ref := silo_of(agent)):
            async with self._budgets[ref]:
                return await self._reconcile_agent(key)
        return await self._reconcile_agent(key)

    async def _reconcile_agent(self, key: Key) -> float | None:
        found = observe(self._cache, key.ref)
        if found is None:
            return None
        if (silo := found.silo) is not None and remote.is_remote(silo):
            return await carry_out(
                lambda _: remote.reconcile_agent(found.agent, silo, self._now()), found.agent, self._cluster
            )
        waiting = [
            obj for name in (TRAINER, GUARD) for obj in needs_events(found.job(name), found.pods[name])
        ]
        seen = replace(found, events=await events_about(waiting, self._cluster))

        def make_plan(rejections: tuple[Rejection, ...]) -> Plan:
            return reconcile(replace(seen, rejections=rejections), self._now(), self._settings)

        first = make_plan(())
        if first.awaits_signature:
            seen = replace(seen, signing_key=await self._signing_key(seen))
            first = make_plan(())
        return await carry_out(
            lambda rejections: make_plan(rejections) if rejections else first, seen.agent, self._cluster
        )

    def _patience(self, before: Object | None, after: Object | None) -> float:
        """A Job that is done waits until the agent's other one is: a part is finished with both."""
        if after is None or is_deleted(after) or not holds(after, JobCondition.COMPLETE):
            return coalesce_delay(before, after)
        labels = {name: labels_of(after).get(name, "") for name in (JOB_UID, AGENT)}
        jobs = self._cache.select(JOB, namespace=ref_of(after).namespace, labels=labels)
        done = all(holds(job, JobCondition.COMPLETE) or is_suspended(job) for job in jobs)
        return 0.0 if done else SUCCESS_SECONDS

    async def _signing_key(self, seen: AgentObservation) -> SigningKey | None:
        """The silo's key for this agent; None where there is none, which the Silo's condition `Ready` explains."""
        public_key = None if seen.silo is None else succession.key_for(seen.agent, seen.silo)
        if public_key is None:
            return None
        try:
            found = await self._cluster.get(SECRET, Ref(ref_of(seen.agent).namespace, SIGNING_KEY))
        except NotFound:
            return None
        return key_secret.key_of(found, public_key)

    async def _reconcile_silo(self, ref: Ref) -> float | None:
        silo = self._cache.get(SILO_KIND, ref)
        if silo is None:
            return None
        if remote.is_remote(silo):
            return await carry_out(
                lambda found: remote.reconcile(silo, found, self._now()), silo, self._cluster
            )
        try:
            secret = await self._cluster.get(SECRET, Ref(ref.namespace, SIGNING_KEY))
        except NotFound:
            secret = None
        needed = self._keys_needed(ref.namespace)

        def make_plan(rejections: tuple[Rejection, ...]) -> Plan:
            spent = observe_budgets(self._cache, silo, ref)
            seen = signing_key.KeyObservation(
                silo, secret, rejections, needed, self._settings.follows_hub, spent
            )
            return signing_key.reconcile(seen, self._now(), SigningKey.generate)

        return await carry_out(make_plan, silo, self._cluster)

    def _keys_needed(self, namespace: str) -> frozenset[str]:
        """Keys with which somebody in the namespace signs: an agent whose part is over does not any more."""
        silos = [silo for silo in self._cache.select(SILO_KIND, namespace=namespace) if not is_deleted(silo)]
        agents = [
            agent
            for agent in self._cache.select(SILO_AGENT, namespace=namespace)
            if not holds(agent, ConditionType.FINISHED)
        ]
        return succession.needed_keys(silos, agents)

    def _keys_of_silo(self, silo: Object) -> Iterator[Key]:
        ref = ref_of(silo)
        yield Key(SILO_KIND, ref)
        for agent in self._cache.select(SILO_AGENT, namespace=ref.namespace):
            if silo_of(agent) == ref:
                yield Key(SILO_AGENT, ref_of(agent))

    def _keys_of_agent(self, agent: Object) -> Iterator[Key]:
        yield Key(SILO_AGENT, ref_of(agent))
        if self._has_budgets(silo_of(agent)):
            yield Key(SILO_KIND, silo_of(agent))

    def _keys_of_child(self, child: Object) -> Iterator[Key]:
        labels, namespace = labels_of(child), ref_of(child).namespace
        if AGENT in labels:
            yield Key(SILO_AGENT, Ref(namespace, labels[AGENT]))
        # What a guard has said of the ledger counts, whatever became of its agent.
        if child["kind"] == POD.name and labels.get(COMPONENT) == GUARD:
            silo = Ref(namespace, labels.get(SILO, ""))
            if self._has_budgets(silo):
                yield Key(SILO_KIND, silo)

    def _has_budgets(self, silo: Ref) -> bool:
        return has_budgets(self._cache.get(SILO_KIND, silo))
