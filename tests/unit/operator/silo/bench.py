"""A silo controller over a cluster in memory, in virtual time, and what tests do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fedsilo.api.observed import Object, condition, uid_of
from fedsilo_operator.cluster.interface import NotFound
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import JOB, SILO_AGENT, SILO_KIND, Kind, Ref
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo.controller import SiloController
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.unit.operator.silo.harness import AGENT_REF, NAME, SETTINGS, SILO_REF, START, agent, pod_of

KEY_REF = Ref(SILO_REF.namespace, SIGNING_KEY)


def fresh_object(obj: Object) -> Object:
    """An object as a person or the job controller would apply it."""
    metadata = {
        key: value for key, value in obj["metadata"].items() if key in ("name", "namespace", "labels")
    }
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


@dataclass
class Bench:
    """A cluster and what a test does to it."""

    cluster: FakeCluster

    def agent(self) -> Object:
        return self.cluster.peek(SILO_AGENT, AGENT_REF)

    def silo(self) -> Object:
        return self.cluster.peek(SILO_KIND, SILO_REF)

    def ready_condition(self, obj: Object) -> tuple[str, str]:
        found = condition(obj, "Ready") or {}
        return found.get("status", ""), found.get("reason", "")

    def job(self, component: str) -> Object:
        return self.cluster.peek(JOB, Ref(AGENT_REF.namespace, f"{NAME}-{component}"))

    def is_another(self, kind: Kind, ref: Ref, uid: str) -> bool:
        return uid_of(self.cluster.peek(kind, ref)) != uid

    def apply_agent(self) -> None:
        """The agent as the job controller makes it, once the silo has published its key."""
        self.cluster.put(
            fresh_object(agent(publicKey=self.silo()["status"]["publicKey"])), "fedsilo-operator"
        )

    def pod(self, component: str, **status: Any) -> Object:
        return self.cluster.put(pod_of(self.job(component), f"{NAME}-{component}-x", **status), "kubelet")

    def writes(self, seconds: float) -> Coroutine[Any, Any, list[Any]]:
        async def watch_writes() -> list[Any]:
            before = len(self.cluster.writes)
            await asyncio.sleep(seconds)
            return self.cluster.writes[before:]

        return watch_writes()

    async def wait_until(self, what: Callable[[], Any], seconds: float = 60.0) -> None:
        for _ in range(int(seconds * 10)):
            with suppress(NotFound, KeyError):
                if what():
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("waited in vain")


@asynccontextmanager
async def operator() -> AsyncIterator[Bench]:
    """A silo controller at work; its clock is that of the loop."""
    loop = asyncio.get_running_loop()
    cluster = FakeCluster(now=lambda: START + timedelta(seconds=loop.time()))
    store = Store()
    through = WriteThroughCluster(cluster, store)
    controller: Reconciler = SiloController(through, store, SETTINGS, cluster.now)
    task = asyncio.create_task(Operator(through, store, [controller]).run())
    try:
        yield Bench(cluster)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def virtually(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in virtual time, beside a silo controller."""

    async def run_test() -> None:
        async with operator() as bench:
            await test(bench)

    def synchronous_test() -> None:
        run(run_test())

    return synchronous_test
