"""A whole job whose guards know one address only: the gateway's, or that of whatever ends TLS before it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from fedsilo.wire import Authority, SigningKey, make_authority
from fedsilo_operator.gateway.forwarding import ForwardingService, Route
from fedsilo_operator.gateway.limits import Limits, RequestAccount
from fedsilo_operator.gateway.service import GatewayService
from tests.integration.gateway.place import serve_application, server_tls
from tests.integration.service.site import Process, Site, federation, wait_until
from tests.ports import free_port

DIGITS = {"classes": 10, "inputShape": [8, 8]}


@pytest.fixture(scope="module")
def directly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the model of a run without a gateway."""
    site = Site(tmp_path_factory.mktemp("directly"), federation(rounds=2, data=DIGITS))
    with start_processes(site) as aggregator:
        assert aggregator.exit_code() == 0, site.log()
    return model_of(site)


async def test_the_model_is_the_same_to_the_byte(directly: str, tmp_path: Path) -> None:
    site = Site(tmp_path / "job", federation(rounds=2, data=DIGITS))
    authority, routes = make_authority(), routes_of(site)
    async with gateway(routes, server_tls(tmp_path / "gateway", authority)) as (service, port):
        lead(site, port, authority)
        await run(site)
    assert model_of(site) == directly
    assert not service.refused.keys() - {"unreachable"}


@pytest.mark.thorough
async def test_the_same_behind_a_hop_that_ends_tls_with_another_certificate(
    directly: str, tmp_path: Path
) -> None:
    """The hop works like an Ingress, or an institution's proxy that looks into TLS: bytes are bound by signatures, not
    connections."""
    site = Site(tmp_path / "job", federation(rounds=2, data=DIGITS))
    inner, outer = make_authority(), make_authority()
    async with (
        gateway(routes_of(site), server_tls(tmp_path / "gateway", inner)) as (_, behind),
        hop(behind, inner, server_tls(tmp_path / "hop", outer)) as port,
    ):
        lead(site, port, outer)
        await run(site)
    assert model_of(site) == directly


@pytest.mark.thorough
async def test_a_gateway_that_is_gone_for_a_while_costs_nothing_but_time(
    directly: str, tmp_path: Path
) -> None:
    site = Site(tmp_path / "job", federation(rounds=2, data=DIGITS))
    authority, routes = make_authority(), routes_of(site)
    tls, port = server_tls(tmp_path / "gateway", authority), free_port()
    lead(site, port, authority)
    with start_processes(site) as aggregator:
        for silo in ("north", "south"):
            await asyncio.to_thread(wait_until, lambda: "trying again" in site.log(silo), "a try")  # noqa: B023
        async with gateway(routes, tls, port):
            audit = site.workdir.volume("north").audit / "log.jsonl"
            await asyncio.to_thread(
                wait_until, lambda: audit.exists() and "departure" in audit.read_text(), "a departure"
            )
        async with gateway(routes, tls, port):
            assert await asyncio.to_thread(aggregator.exit_code) == 0, site.log()
    assert model_of(site) == directly


def routes_of(site: Site) -> Mapping[str, Route]:
    """The ways to the site's aggregator, as a gateway knows them."""
    trust = site.agent("north")["spec"]["trust"]
    keys = {
        silo: SigningKey.load(site.workdir.volume(silo.rpartition("/")[2]).guard / "key.pem").verify_key
        for silo in site.silos
    }
    return {silo: Route(trust["url"], trust["caCertificate"], key) for silo, key in keys.items()}


def lead(site: Site, port: int, authority: Authority) -> None:
    """Tell the guards another address and authority than the aggregator's."""
    for name in ("north", "south"):
        volume = site.workdir.volume(name)
        for directory in (volume.root, volume.guard):
            path = directory / "agent.json"
            agent = json.loads(path.read_text())
            agent["spec"]["trust"]["url"] = f"https://127.0.0.1:{port}"
            agent["spec"]["trust"]["caCertificate"] = authority.cert_pem.decode()
            path.write_text(json.dumps(agent))


async def run(site: Site) -> None:
    """Run the job to its end."""
    with start_processes(site) as aggregator:
        assert await asyncio.to_thread(aggregator.exit_code) == 0, site.log()


@contextmanager
def start_processes(site: Site) -> Iterator[Process]:
    """All processes of the job, ended at the end of the block; yields the aggregator."""
    with ExitStack() as stack:
        aggregator = site.start_aggregator()
        stack.callback(aggregator.kill)
        for name in ("north", "south"):
            for process in (site.guard(name), site.trainer(name)):
                stack.callback(process.kill)
        yield aggregator


def model_of(site: Site) -> str:
    return hashlib.sha256((site.workdir.aggregator / "model.safetensors").read_bytes()).hexdigest()


@asynccontextmanager
async def gateway(
    routes: Mapping[str, Route], tls: ssl.SSLContext, port: int = 0
) -> AsyncIterator[tuple[GatewayService, int]]:
    service = GatewayService(ForwardingService(lambda _, silo: routes.get(silo), RequestAccount(Limits())))
    async with serve_application(service.runner(), tls, port) as found:
        yield service, found


@asynccontextmanager
async def hop(behind: int, trusted: Authority, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """Takes every byte out of one TLS connection and puts it into another."""
    inner = ssl.create_default_context(cadata=trusted.cert_pem.decode())
    open_pipes: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_pipes.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", behind, ssl=inner)
            await asyncio.gather(pipe(reader, there_writer), pipe(there_reader, writer))
        finally:
            open_pipes.discard(task)

    server = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*open_pipes, return_exceptions=True)
