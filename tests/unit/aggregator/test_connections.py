"""What is no request is refused like a request that is wrong: counted, one line of log, a problem document."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fedsilo.errors import Problem
from fedsilo.http.listener import ConnectionStore
from fedsilo.http.refusals import RefusingRunner, problem_response


class Server:
    """An application that answers every request, and what was refused before it came there."""

    def __init__(self, port: int, refused: list[tuple[str, str]]) -> None:
        self.port = port
        self.refused = refused

    async def send(self, data: bytes) -> tuple[int, str, bytes]:
        """Status, media type and body of the answer to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers["content-type"].partition(";")[0], body


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    refused: list[tuple[str, str]] = []

    def refuse(what: str, problem: Problem) -> web.Response:
        refused.append((what, problem.code))
        return problem_response(problem)

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PUT":
            raise RuntimeError("a defect")
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_route("*", "/", answer)
    runner = RefusingRunner(app, refuse, ConnectionStore(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Server(runner.addresses[0][1], refused)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("data", "code", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", "malformed", 400),
        (b"GET / SPDY/9\r\n\r\n", "malformed", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "malformed", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "malformed", 400),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "malformed",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: " + b"A" * 9000 + b"\r\n\r\n", "too-long", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: cookies\r\n\r\n", "malformed", 400),
    ],
)
async def test_what_cannot_be_parsed_is_refused(
    server: Server, data: bytes, code: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    found, media_type, body = await server.send(data)
    assert (found, media_type) == (status, "application/problem+json")
    assert json.loads(body)["type"] == f"urn:fedsilo:problem:{code}"
    assert [refusal for _, refusal in server.refused] == [code]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_defect_is_logged_as_one(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    status, _, _ = await server.send(b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status == 500
    assert server.refused == []
    assert "a defect" in caplog.text


async def test_a_request_is_answered(server: Server) -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert (await server.send(data))[::2] == (200, b"ok")
    assert server.refused == []


async def test_what_follows_a_request_is_read() -> None:
    """What the parser gives for a request is told from what it gives for an error."""
    runner = RefusingRunner(
        web.Application(), lambda _, problem: problem_response(problem), ConnectionStore()
    )
    await runner.setup()
    assert runner.server is not None
    connection = runner.server()
    for _ in range(3):
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert len(connection._messages) == 3
    await runner.cleanup()


async def test_of_what_follows_something_unparsable_nothing_is_kept() -> None:
    runner = RefusingRunner(
        web.Application(), lambda _, problem: problem_response(problem), ConnectionStore()
    )
    await runner.setup()
    assert runner.server is not None
    connection = runner.server()
    for _ in range(3):
        connection.data_received(b"\x00" * 1000)
    assert len(connection._messages) == 1
    await runner.cleanup()
