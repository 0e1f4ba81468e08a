"""An institution's cluster in memory, in virtual time: silo controller and connector as one process runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fedsilo.api.annotations import LEAVE, ROTATE_KEY
from fedsilo.api.observed import Object, condition
from fedsilo.hub.client import HubAgent, HubRequests
from fedsilo.wire import SigningKey, VerifyKey
from fedsilo_operator.cluster.interface import NotFound
from fedsilo_operator.cluster.one_namespace import NamespaceCluster
from fedsilo_operator.connector.connector import Connector, Subscription
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo.controller import SiloController
from tests.hub_fakes.hub import FakeHub
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.unit.operator.silo.harness import AGENT_REF, NAME, SETTINGS, SILO_REF, START, agent, silo

TOKEN = "a-token"
HUB_ID = "0123456789abcdef"
HUB_URL = "https://hub.example:8443"
FOLLOWING = replace(SETTINGS, follows_hub=True)


class Institution:
    """A cluster, the hub that it follows, and what a test does to both."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.cluster = FakeCluster(now=lambda: START + timedelta(seconds=loop.time()))
        self.hub = FakeHub(str(SILO_REF), token=TOKEN)
        self._work: asyncio.Task[Any] | None = None

    def start(self, token: str | None = TOKEN) -> None:
        """Start silo controller and connector as a pod of the Deployment does."""
        store = Store()
        cluster = WriteThroughCluster(NamespaceCluster(self.cluster, SILO_REF.namespace), store)
        connector = Connector(
            cluster, store, Subscription(SILO_REF, HUB_ID, HUB_URL, token), self._open, self.cluster.now
        )
        controllers: list[Reconciler] = [
            SiloController(cluster, store, FOLLOWING, self.cluster.now),
            connector,
        ]
        operator = Operator(cluster, store, controllers, alongside=[connector.follow])
        connector.wake = lambda: operator.controllers[1].queue.add(connector.key)
        self._work = asyncio.create_task(operator.run())

    async def kill(self) -> None:
        """The process ends, wherever it is."""
        if self._work is not None:
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work

    def end_now(self) -> None:
        """The process ends at what it waits for next."""
        assert self._work is not None
        self._work.cancel()

    async def until_ended(self, otherwise: Callable[[], Any]) -> None:
        """Wait until the process has ended, or something is true."""
        for _ in range(6000):
            if self._work is None or self._work.done() or otherwise():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("waited in vain")

    def install(self, **policy: Any) -> None:
        """The Silo, as a release makes it."""
        made = silo(policy)
        del made["status"]
        metadata = {name: made["metadata"][name] for name in ("name", "namespace")}
        self.cluster.put({**made, "metadata": metadata}, "helm")

    def leave(self, leaves: bool = True) -> None:
        """A person of the institution annotates the Silo."""
        found = self.silo()
        found["metadata"]["annotations"] = {LEAVE: "true"} if leaves else {}
        self.cluster.put(found)

    def rotate_key(self) -> None:
        """A person of the institution asks for another key."""
        found = self.silo()
        found["metadata"]["annotations"] = {ROTATE_KEY: VerifyKey.from_text(self.public_key()).key_id}
        self.cluster.put(found)

    def accept(self) -> None:
        """The consortium's office accepts the key that was registered."""
        assert self.hub.registered is not None
        self.hub.accepted = self.hub.registered[0]
        self.hub.news()

    async def join(self) -> None:
        """Install the connector, enrol the silo, and wait until the hub has accepted it."""
        self.install()
        self.start()
        await self.wait_until(lambda: self.hub.registered)
        self.accept()
        await self.wait_until(lambda: self.hub_condition()[0] == "True")

    def propose(self, uid: str = "hub-1", *, suspend: bool = True, **trust: Any) -> HubAgent:
        """A job's agent at the hub, with the key that the silo has."""
        proposed = HubAgent(NAME, uid, self.spec(suspend=suspend, **trust))
        self.hub.put(proposed)
        return proposed

    def spec(self, *, suspend: bool = True, **trust: Any) -> Object:
        """Specification of an agent as an honest hub makes it, but for these changes of its trust bundle."""
        made: Object = agent(suspend=suspend, publicKey=self.public_key(), url=HUB_URL)["spec"]
        del made["trust"]["address"]  # which only the hub's own cluster has
        made["trust"] |= trust
        return made

    def public_key(self) -> str:
        """The silo's public key as the Silo publishes it."""
        return VerifyKey.from_text(self.silo()["status"]["publicKey"]).to_text()

    def registered_key(self) -> str | None:
        """The key that the hub has registered."""
        return None if self.hub.registered is None else self.hub.registered[0].to_text()

    def silo(self) -> Object:
        return self.cluster.peek(SILO_KIND, SILO_REF)

    def agent(self) -> Object:
        return self.cluster.peek(SILO_AGENT, AGENT_REF)

    def is_there(self) -> bool:
        try:
            self.agent()
        except NotFound:
            return False
        return True

    def hub_condition(self) -> tuple[str, str]:
        """Status and reason of the condition about the hub."""
        found = condition(self.silo(), "HubReached") or {}
        return found.get("status", ""), found.get("reason", "")

    def reported_status(self) -> Any:
        return self.hub.statuses.get(NAME, {})

    async def wait_until(self, what: Callable[[], Any], seconds: float = 300.0) -> None:
        """Wait until something is true; no time passes in the world outside."""
        for _ in range(int(seconds * 10)):
            assert self._work is None or not self._work.done(), self._work.exception()
            with suppress(NotFound, KeyError):
                if what():
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("waited in vain")

    def now(self) -> datetime:
        return self.cluster.now()

    @asynccontextmanager
    async def _open(self, key: SigningKey) -> AsyncIterator[HubRequests]:
        yield self.hub.requests_of(key)


def virtually(test: Callable[[Institution], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in virtual time."""

    async def run_test() -> None:
        institution = Institution()
        try:
            await test(institution)
        finally:
            await institution.kill()

    def synchronous_test() -> None:
        run(run_test())

    return synchronous_test
