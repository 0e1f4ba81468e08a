"""Jobs from the operator's caches, which a standby has too; their Events are listed while a page is open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Never

from fedsilo.api.observed import Object
from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.institution import InstitutionSnapshot
from fedsilo.dashboard.snapshot import JobsSnapshot
from fedsilo_operator.cluster.interface import Cluster, ClusterError
from fedsilo_operator.objects import EVENT, FEDERATED_JOB, SILO_AGENT, SILO_KIND, ref_of, silo_of
from fedsilo_operator.runtime.store import Store

EVENTS_POLL_SECONDS = 5.0
"""Time between two listings of Events while a page is open."""

MAX_NAMESPACES = 20
"""Namespaces whose Events are listed: those of the newest jobs."""

ABOUT_JOBS = f"involvedObject.kind={FEDERATED_JOB.name}"

log = logging.getLogger("fedsilo")


class Source:
    """A feed of the cluster's jobs.

    Only Events about jobs are listed. Those about agents lie in the namespaces of institutions, and whoever may list
    jobs need not be allowed to read there.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._events: list[Object] = []
        self.feed = Feed(self.snapshot)
        for kind in (FEDERATED_JOB, SILO_AGENT):
            store.indexer(kind, "").listeners.append(lambda _before, _after: self.feed.notify())

    def snapshot(self) -> JobsSnapshot:
        """All jobs as they are known now."""
        jobs, agents = self._store.select(FEDERATED_JOB), self._store.select(SILO_AGENT)
        return JobsSnapshot(place="cluster", jobs=jobs, agents=agents, events=self._events)

    async def run(self) -> Never:
        """Keep the Events up to date until cancelled."""
        while True:
            if self.feed.watchers:
                await self._list_events()
            await asyncio.sleep(EVENTS_POLL_SECONDS)

    async def _list_events(self) -> None:
        found: list[Object] = []
        for namespace in _newest_namespaces(self._store.select(FEDERATED_JOB)):
            try:
                listing = await self._cluster.list(EVENT, namespace=namespace, fields=ABOUT_JOBS)
            except ClusterError as error:
                log.debug("dashboard: Events of %s: %s", namespace, error)
            else:
                found += listing.items
        if found != self._events:
            self._events = found
            self.feed.notify()


class InstitutionSource:
    """A feed of the silos whose guards run in this cluster, and of their SiloAgents."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.feed = Feed(self.snapshot)
        for kind in (SILO_KIND, SILO_AGENT):
            store.indexer(kind, "").listeners.append(lambda _before, _after: self.feed.notify())

    def snapshot(self) -> InstitutionSnapshot:
        """Silos and agents as they are known now."""
        silos = [silo for silo in self._store.select(SILO_KIND) if silo["spec"].get("remote") is None]
        known = {ref_of(silo) for silo in silos}
        agents = [agent for agent in self._store.select(SILO_AGENT) if silo_of(agent) in known]
        return InstitutionSnapshot(place="cluster", silos=silos, agents=agents)


def _newest_namespaces(jobs: Iterable[Object]) -> list[str]:
    """Namespaces of jobs, those with the newest first."""
    ordered = sorted(jobs, key=lambda job: job["metadata"].get("creationTimestamp") or "", reverse=True)
    return list(dict.fromkeys(ref_of(job).namespace for job in ordered))[:MAX_NAMESPACES]
