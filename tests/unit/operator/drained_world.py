"""A cluster of some nodes, which people drain while a job runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any

from typing_extensions import override

from fedsilo.api.observed import Object, holds
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.objects import (
    AGENT,
    COMPONENT,
    DISRUPTION_BUDGET,
    FEDERATED_JOB,
    NODE,
    POD,
    Ref,
    labels_of,
    ref_of,
)
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo.controller import SiloController
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.disruption import cordon, count_budgets, evict
from tests.unit.operator.job.objects import (
    EAST,
    JOB_REF,
    NORTH,
    SETTINGS,
    SOUTH,
    START,
    manifest,
    signing_secret,
    silo,
)
from tests.unit.operator.world import World

STEP_SECONDS = 5
"""How often the world goes on, and how often `kubectl drain` asks again."""


class NodesWorld(World):
    """A world with nodes, of which a pod gets one that is not cordoned; guard and trainer share one."""

    @override
    def _node_of_new(self, _batch: Object) -> Object:
        return {}

    @override
    def _keep(self, pod: Object) -> None:
        if "nodeName" in pod["spec"]:
            super()._keep(pod)
        elif nodes := self._nodes_for(pod):
            spec = {**pod["spec"], "nodeName": self._random.choice(nodes)}
            self.cluster.put({**pod, "spec": spec}, "scheduler")

    def _nodes_for(self, pod: Object) -> list[str]:
        free = [
            ref_of(node).name
            for node in self.cluster.glance(NODE)
            if not (node.get("spec") or {}).get("unschedulable")
        ]
        agent, component = labels_of(pod).get(AGENT), labels_of(pod)[COMPONENT]
        beside = [
            other["spec"]["nodeName"]
            for other in self.cluster.glance(POD)
            if agent is not None and labels_of(other).get(AGENT) == agent and "nodeName" in other["spec"]
        ]
        if component == "guard" or beside:
            return [name for name in free if name in beside]
        return free


class DrainedFederation:
    """A job over three silos on some nodes, with the whole operator.

    :param nodes: by name, those that are there at the start.
    """

    def __init__(self, seed: int, nodes: Sequence[str], **spec: Any) -> None:
        self.cluster = FakeCluster(now=self._now, delay=lambda: 0.05)
        self.world = NodesWorld(self.cluster, Random(seed), rounds=1)
        self.world.may_end = False
        for name in nodes:
            cordon(self.cluster, name, unschedulable=False)
        self.cluster.put(manifest((NORTH, SOUTH, EAST), **spec))
        for ref in (NORTH, SOUTH, EAST):
            self.cluster.put(silo(ref))
            self.cluster.put(signing_secret(ref))
        self.draining: set[str] = set()
        self.most_missing = 0
        """Largest number of the job's parts that were missing at the same time, since it ran."""
        self.seconds = 0
        self._runs = False
        self._operating: asyncio.Future[Any] | None = None

    def _now(self) -> datetime:
        with suppress(RuntimeError):
            return START + timedelta(seconds=asyncio.get_running_loop().time())
        return START

    async def begin(self) -> None:
        """Until all parts of the job run."""
        await self.restart_operator()
        while len(self.parts()) < 4 or not holds(self._job(), "Running"):
            await self.go_on(STEP_SECONDS)
        await self.go_on(10)
        self._runs = True

    async def restart_operator(self) -> None:
        """Another operator takes over, with empty caches."""
        await self.end()
        store = Store()
        cluster = WriteThroughCluster(self.cluster, store)
        controllers: list[Reconciler] = [
            JobController(cluster, store, SETTINGS, self._now),
            SiloController(cluster, store, SETTINGS, self._now),
        ]
        self._operating = asyncio.ensure_future(Operator(cluster, store, controllers).run())

    async def end(self) -> None:
        """Stop the operator as a killed process stops."""
        if self._operating is not None:
            self._operating.cancel()
            with suppress(asyncio.CancelledError):
                await self._operating

    def drain(self, name: str) -> None:
        """Cordon a node, and ask for the eviction of its pods until it has none."""
        cordon(self.cluster, name)
        self.draining.add(name)

    async def go_on(self, seconds: int) -> None:
        """Let so much time pass."""
        for _ in range(0, seconds, STEP_SECONDS):
            for ref in [ref_of(pod) for pod in self.pods() if _node(pod) in self.draining]:
                evict(self.cluster, ref)
            await asyncio.sleep(STEP_SECONDS)
            self.seconds += STEP_SECONDS
            self.world.step()
            count_budgets(self.cluster)
            if self._runs:
                self.most_missing = max(self.most_missing, 4 - len(self.parts()))

    async def until_empty(self, *nodes: str, at_most: int) -> None:
        """Until no pod is left on these nodes; a drain that takes longer hangs."""
        since = self.seconds
        while any(_node(pod) in nodes for pod in self.pods()):
            await self.go_on(STEP_SECONDS)
            assert self.seconds - since <= at_most, f"{nodes} hang: {self._job()['status']}"

    def pods(self) -> Iterator[Object]:
        """Pods that have not ended."""
        for pod in list(self.cluster.glance(POD)):
            if pod["status"]["phase"] in ("Pending", "Running"):
                yield pod

    def parts(self) -> set[str]:
        """The aggregator, and agents both of whose pods run."""
        running = [labels_of(pod) for pod in self.pods() if holds(pod, "Ready")]
        whole = [found.get(AGENT, "aggregator") for found in running]
        return {name for name in whole if whole.count(name) == (1 if name == "aggregator" else 2)}

    def _job(self) -> Object:
        return self.cluster.peek(FEDERATED_JOB, JOB_REF)


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def budget_refs(cluster: FakeCluster) -> list[Ref]:
    """Names of all budgets."""
    return [ref_of(budget) for budget in cluster.objects(DISRUPTION_BUDGET)]
