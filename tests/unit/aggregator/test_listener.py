"""Nobody takes the connections of others: what has proven nothing, or is too much for one silo, is closed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from fedsilo.errors import ManifestInvalid
from fedsilo.http.listener import (
    MAX_PER_SILO,
    MAX_UNPROVEN,
    NOTICE_SECONDS,
    UNPROVEN_SECONDS,
    ConnectionStore,
    Listener,
)
from fedsilo.http.refusals import RefusingRunner, problem_response
from fedsilo.wire import issue_server, make_authority
from fedsilo_aggregator.rounds import server_context
from tests.ports import free_port


class Table:
    """Connections that are names, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.closed: list[str] = []
        self.connections = ConnectionStore(lambda: self.now)

    def add(self, *names: str) -> None:
        for name in names:
            self.connections.add(name, lambda name=name: self.closed.append(name))  # type: ignore[misc]


@pytest.fixture
def table() -> Table:
    return Table()


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{position}" for position in range(number)]


def test_a_connection_that_proves_nothing_in_time_is_closed(table: Table) -> None:
    table.add("stranger", "silo")
    table.connections.prove("silo", "a/a")
    table.now = UNPROVEN_SECONDS - 1
    table.add("late")
    table.connections.sweep()
    assert table.closed == []
    table.now = UNPROVEN_SECONDS
    table.connections.sweep()
    assert table.closed == ["stranger"]


def test_the_oldest_connection_that_has_proven_nothing_makes_room(table: Table) -> None:
    table.add("silo")
    table.connections.prove("silo", "a/a")
    table.add(*names("s", MAX_UNPROVEN))
    assert table.closed == []
    table.add("one more", "and another")
    assert table.closed == ["s0", "s1"]


def test_a_silo_closes_only_connections_of_its_own(table: Table) -> None:
    table.add("other")
    table.connections.prove("other", "b/b")
    for name in names("c", MAX_PER_SILO + 2):
        table.add(name)
        table.connections.prove(name, "a/a")
        table.connections.prove(name, "a/a")  # with each of its requests
    assert table.closed == ["c0", "c1"]


def test_a_connection_that_has_ended_takes_no_room(table: Table) -> None:
    for name in names("s", 3 * MAX_UNPROVEN):
        table.add(name)
        table.connections.remove(name)
    for name in names("c", 3 * MAX_PER_SILO):
        table.add(name)
        table.connections.prove(name, "a/a")
        table.connections.remove(name)
    table.now = UNPROVEN_SECONDS
    table.connections.sweep()
    assert table.closed == []


def test_a_flood_of_connections_is_no_flood_of_the_log(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(int(NOTICE_SECONDS)):
        table.now = float(second)
        table.add(*names(f"{second}-", 2 * MAX_UNPROVEN))
        table.connections.sweep()
    assert len(caplog.records) == 1
    table.now = NOTICE_SECONDS
    table.connections.sweep()
    first, second_line = (record.getMessage() for record in caplog.records)
    assert f"closed {MAX_UNPROVEN} connections" in first
    assert f"closed {len(table.closed) - MAX_UNPROVEN} connections" in second_line


def test_one_connection_that_was_closed_is_told_as_one(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.add("silent")
    table.now = UNPROVEN_SECONDS
    table.connections.sweep()
    assert [record.getMessage().partition(" that ")[0] for record in caplog.records] == [
        "closed 1 connection"
    ]


class Service:
    """A listening socket over an application that counts a request to `/silo` as a silo's proof."""

    def __init__(self, port: int, connections: ConnectionStore, client: ssl.SSLContext) -> None:
        self.port = port
        self.connections = connections
        self.client = client

    async def get(self, path: str) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return await reader.readuntil(b"\r\n\r\nok"), writer

    async def wait_until_empty(self) -> None:
        while self.connections._unproven or any(self.connections._proven.values()):
            await asyncio.sleep(0.01)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    authority = make_authority()
    certificate, key = issue_server(authority, ["127.0.0.1"])
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    connections = ConnectionStore()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/silo":
            connections.prove(request.protocol, "a/a")
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner = RefusingRunner(
        app, lambda _, problem: problem_response(problem), connections, shutdown_timeout=1
    )
    await runner.setup()
    port = free_port()
    tls = server_context(tmp_path / "crt", tmp_path / "key")
    await Listener(runner, connections, "127.0.0.1", port, tls).start()
    try:
        client = ssl.create_default_context(cadata=authority.cert_pem.decode())
        yield Service(port, connections, client)
    finally:
        await runner.cleanup()
    with pytest.raises(OSError):  # nobody listens any more
        socket.create_connection(("127.0.0.1", port), timeout=1).close()


async def test_connections_are_counted_from_their_start_to_their_end(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    _, stranger = await service.get("/other")
    _, silo = await service.get("/silo")
    with socket.create_connection(("127.0.0.1", service.port)):
        while len(service.connections._unproven) < 2:
            await asyncio.sleep(0.01)
        assert [len(own) for own in service.connections._proven.values()] == [1]
    for writer in (stranger, silo):
        writer.close()
        await writer.wait_closed()
    await service.wait_until_empty()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_connection_is_closed_in_the_middle_of_its_handshake_and_after_it(service: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    while not service.connections._unproven:
        await asyncio.sleep(0.01)
    service.connections.close_oldest()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    _, stranger = await service.get("/other")
    service.connections.close_oldest()
    with pytest.raises(OSError):
        while True:
            stranger.write(b"x")
            await stranger.drain()
            await asyncio.sleep(0.01)
    await service.wait_until_empty()


async def test_bytes_that_are_no_handshake_are_no_news(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"HTTP" not in await reader.read()
    writer.close()
    await writer.wait_closed()
    await service.wait_until_empty()
    head, silo = await service.get("/silo")
    assert head.startswith(b"HTTP/1.1 200")
    silo.close()
    await silo.wait_closed()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_connection_that_a_proxy_shares_between_silos_is_closed_for_none_of_them(table: Table) -> None:
    table.add("shared")
    table.connections.prove("shared", "a/a")
    table.connections.prove("shared", "b/b")
    for name in names("a", MAX_PER_SILO):
        table.add(name)
        table.connections.prove(name, "a/a")
    assert table.closed == [], "it counts for this silo no more"
    # It is the other silo's alone now, and as good as any other of that.
    for name in names("b", MAX_PER_SILO):
        table.add(name)
        table.connections.prove(name, "b/b")
    assert table.closed == ["shared"]


def test_two_silos_together_have_no_more_connections_than_each_for_itself(table: Table) -> None:
    for name in names("c", 10 * MAX_PER_SILO):
        table.add(name)
        table.connections.prove(name, "a/a")
        table.connections.prove(name, "b/b")
    assert len(table.closed) == 9 * MAX_PER_SILO


def test_a_shared_connection_that_ends_is_forgotten_by_all(table: Table) -> None:
    table.add("shared")
    table.connections.prove("shared", "a/a")
    table.connections.prove("shared", "b/b")
    table.connections.remove("shared")
    table.connections.prove("shared", "b/b")
    for silo in ("a/a", "b/b"):
        for name in names(silo, MAX_PER_SILO):
            table.add(name)
            table.connections.prove(name, silo)
    assert table.closed == []


def test_how_many_connections_a_silo_has_is_the_services_to_say() -> None:
    connections, closed = ConnectionStore(per_silo=2), []
    for name in names("c", 3):
        connections.add(name, lambda name=name: closed.append(name))  # type: ignore[misc]
        connections.prove(name, "a/a")
    assert closed == ["c0"]


async def test_an_address_in_use_is_said_with_its_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        runner = RefusingRunner(web.Application(), problem_response, ConnectionStore())  # type: ignore[arg-type]
        await runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with pytest.raises(
            ManifestInvalid, match=rf"port {port}: cannot be listened on \(Address already in use\)"
        ):
            await Listener(runner, ConnectionStore(), "127.0.0.1", port, context).start()
        await runner.cleanup()


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match=r"server\.crt"):
        server_context(tmp_path / "server.crt", tmp_path / "server.key")
