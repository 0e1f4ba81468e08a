"""A gateway over a cluster: caches that follow it, the address that it writes for invitations, and the service."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Never

from fedsilo.http.listener import Listener
from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.gateway.forwarding import ForwardingService
from fedsilo_operator.gateway.hub import Hub, HubIdentity
from fedsilo_operator.gateway.limits import Limits, RequestAccount
from fedsilo_operator.gateway.service import GatewayService
from fedsilo_operator.gateway.silo_requests import SiloRequests
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND
from fedsilo_operator.runtime.operator import run_until_one_ends
from fedsilo_operator.runtime.reflector import Reflector
from fedsilo_operator.runtime.store import Store, WriteThroughCluster

DESCRIBE_SECONDS = 60.0
"""Time after which Silos that could not be written are tried again."""


class Gateway:
    """Everything of a gateway but its arguments.

    :ivar port: where it serves, once it does.
    """

    def __init__(self, server: Cluster, identity: HubIdentity, limits: Limits) -> None:
        store = Store()
        cluster = WriteThroughCluster(server, store)
        silos, agents = self._reflectors = [
            Reflector(cluster, kind, "", store.indexer(kind, "")) for kind in (SILO_KIND, SILO_AGENT)
        ]
        self.hub = Hub(cluster, store, identity, lambda: agents.version)
        self.admission = RequestAccount(limits)
        self._requests = SiloRequests(self.hub, self.admission)
        self.service = GatewayService(ForwardingService(self.hub.route, self.admission), self._requests)
        self.port: int | None = None
        self._news = asyncio.Event()
        for reflector in (silos, agents):
            reflector.on_change(self._requests.notice)
            reflector.on_change(lambda _before, _after: self._news.set())

    def unready_reason(self) -> str:
        """What is still missing, in words; empty when nothing is."""
        return "" if self.port is not None else "Silos and SiloAgents are not listed yet"

    async def run(self, host: str, port: int, tls: ssl.SSLContext | None) -> Never:
        """Serve silos until cancelled; what is not known yet would be refused, so it is listed first."""
        await run_until_one_ends(
            *(reflector.run() for reflector in self._reflectors),
            self._describe(),
            self._serve(host, port, tls),
        )

    async def _serve(self, host: str, port: int, tls: ssl.SSLContext | None) -> Never:
        for reflector in self._reflectors:
            await reflector.synced.wait()
        runner = self.service.runner()
        await runner.setup()
        try:
            listener = Listener(runner, self.admission.connections, host, port, tls)
            await listener.start()
            self.port = listener.port
            await _wait_forever()
        finally:
            await runner.cleanup()

    async def _describe(self) -> Never:
        """Keep the hub's address in every remote Silo."""
        for reflector in self._reflectors:
            await reflector.synced.wait()
        while True:
            self._news.clear()
            for silo in list(self.hub.silos()):
                await self.hub.describe(silo)
            try:
                async with asyncio.timeout(DESCRIBE_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue


async def _wait_forever() -> Never:
    waiting: Callable[[], asyncio.Future[Never]] = asyncio.get_running_loop().create_future
    await waiting()
    raise AssertionError("a future that nobody sets was set")
