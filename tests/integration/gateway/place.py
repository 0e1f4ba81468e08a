"""A gateway on a loopback address, over TLS of its own, and an aggregator behind it that does what a test says."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from fedsilo.wire import Authority, SigningKey, issue_server, make_authority, sign_request
from fedsilo_operator.gateway.forwarding import ForwardingService, Route
from fedsilo_operator.gateway.limits import Limits, RequestAccount
from fedsilo_operator.gateway.service import GatewayService

JOB = "0a1b2c3d-0000-4000-8000-000000000001"
NORTH, SOUTH = "silo-north/north", "silo-south/south"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def server_tls(folder: Path, authority: Authority) -> ssl.SSLContext:
    """Settings of a server for 127.0.0.1, whose certificate this authority issues."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = issue_server(authority, ["127.0.0.1"])
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


@asynccontextmanager
async def serve_application(
    runner: web.AppRunner, tls: ssl.SSLContext | None, port: int = 0
) -> AsyncIterator[int]:
    """Serve an application on 127.0.0.1; yields the port."""
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


class Place:
    """What a test holds in its hands.

    :param tls: whether the gateway ends TLS itself, or something before it does.
    :ivar trusted: for connections with the gateway.
    :ivar handler: answers what arrives at the aggregator.
    :ivar arrived: what arrived there.
    :ivar routes: silo -> its way to the job's aggregator.
    """

    def __init__(self, root: Path, limits: Limits, *, tls: bool = True) -> None:
        self.root = root
        self._tls = tls
        self.keys = {silo: SigningKey.generate() for silo in (NORTH, SOUTH)}
        self.aggregators_authority, self.own_authority = make_authority(), make_authority()
        self.handler: Handler
        self.arrived: list[web.Request] = []
        self.routes: dict[str, Route] = {}
        self.admission = RequestAccount(limits)
        self.service = GatewayService(ForwardingService(self._find, self.admission))
        self.port = 0
        self.trusted: ssl.SSLContext | None = None
        self.client: aiohttp.ClientSession

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Place]:
        """Both servers and a client."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        aggregator = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        tls = server_tls(self.root / "aggregator", self.aggregators_authority)
        own = server_tls(self.root / "gateway", self.own_authority)
        if self._tls:
            self.trusted = ssl.create_default_context(cadata=self.own_authority.cert_pem.decode())
        async with serve_application(aggregator, tls) as port:
            ca = self.aggregators_authority.cert_pem.decode()
            url = f"https://127.0.0.1:{port}"
            self.routes = {silo: Route(url, ca, key.verify_key) for silo, key in self.keys.items()}
            self._runner = self.service.runner()
            async with serve_application(self._runner, own if self._tls else None) as self.port:
                connector = aiohttp.TCPConnector(ssl=self.trusted or True, limit=0)
                async with aiohttp.ClientSession(connector=connector) as self.client:
                    yield self

    @property
    def url(self) -> str:
        """Where the gateway serves."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, silo: str = NORTH, body: bytes | None = None, **options: Any
    ) -> Any:
        """A request of a silo, with its proof."""
        headers = {"Authorization": self.proof(method, path, silo, body)} | options.pop("headers", {})
        options.setdefault("data", body)
        return self.client.request(method, f"{self.url}{path}", headers=headers, **options)

    def proof(self, method: str, path: str, silo: str = NORTH, body: bytes | None = None) -> str:
        """An honest proof of a silo's request."""
        key = self.keys[silo]
        return sign_request(key, job=JOB, sender=silo, method=method, path=path, body=body, now=time.time())

    def connections(self) -> list[asyncio.Transport]:
        """Connections of silos with the gateway."""
        server = self._runner.server
        assert server is not None
        return [made.transport for made in server.connections if made.transport is not None]

    def _find(self, job: str, silo: str) -> Route | None:
        return self.routes.get(silo) if job == JOB else None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.arrived.append(request)
        return await self.handler(request)


def path_of(rest: str) -> str:
    """A path of the job."""
    return f"/v1/jobs/{JOB}/{rest}"
