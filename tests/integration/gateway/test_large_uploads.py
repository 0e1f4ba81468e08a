"""A large upload is relayed past the HTTP library: whole or broken, as fast as the aggregator takes it."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from fedsilo.errors import Problem
from fedsilo.http.refusals import problem_response
from fedsilo_operator.gateway import upload
from fedsilo_operator.gateway.limits import Limits
from fedsilo_operator.gateway.upload import LARGE_BYTES
from tests.integration.gateway.place import NORTH, Place, path_of

UPDATE = path_of("updates/r00001-train-north")
CONTENT = random.Random(7).randbytes(LARGE_BYTES + 12345)
FAR_TOO_MUCH = 64 << 20
"""Bytes that no buffer on the way may take."""


@pytest.fixture(params=["tls", "behind what ends TLS"])
async def entrance(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A gateway that ends TLS, or has it ended by a proxy before it."""
    async with Place(tmp_path, Limits(), tls=request.param == "tls").running() as running:
        yield running


async def parts(content: bytes, size: int = 1 << 20) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


async def whole_body(request: web.Request) -> bytes:
    return b"".join([piece async for piece in request.content.iter_any()])


def length(size: int) -> dict[str, str]:
    return {"Content-Length": str(size)}


async def test_uploads_arrive_whole_over_one_connection_to_the_aggregator(entrance: Place) -> None:
    connections, arrived = set(), []

    async def handler(request: web.Request) -> web.Response:
        connections.add(request.transport)
        if request.method == "PATCH":
            arrived.append(hashlib.sha256(await whole_body(request)).digest())
        return web.Response(status=204)

    entrance.handler = handler
    for size in (LARGE_BYTES, len(CONTENT), LARGE_BYTES + 1):
        body = parts(CONTENT[:size], 999_999)
        async with entrance.ask("PATCH", UPDATE, data=body, headers=length(size)) as answer:
            assert (answer.status, answer.headers["Connection"]) == (204, "close")
        assert arrived.pop() == hashlib.sha256(CONTENT[:size]).digest()
        async with entrance.ask("GET", path_of("task?after=&wait=0")) as answer:
            assert answer.status == 204
    assert len(connections) == 1
    assert not entrance.admission.open


async def test_an_upload_that_breaks_off_never_arrives_as_a_whole(entrance: Place) -> None:
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def handler(request: web.Request) -> web.Response:
        try:
            await whole_body(request)
        except (asyncio.CancelledError, OSError, web.RequestPayloadError):
            ends.put_nowait("broken")
            raise
        ends.put_nowait("whole")
        return web.Response(status=204)

    async def body() -> AsyncIterator[bytes]:
        yield CONTENT[: 4 << 20]
        while not entrance.arrived:
            await asyncio.sleep(0)
        raise ValueError("the silo's process ends")

    entrance.handler = handler
    with pytest.raises(aiohttp.ClientError):
        async with entrance.ask("PATCH", UPDATE, data=body(), headers=length(len(CONTENT))):
            pass
    assert await asyncio.wait_for(ends.get(), 30) == "broken"


async def test_a_refusal_in_the_middle_is_read_by_a_silo_that_sends_all_first(entrance: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        await request.content.readexactly(100_000)
        return problem_response(Problem("round-closed", "too late"))

    entrance.handler = handler
    reader, writer = await connection(entrance)
    writer.write(head(entrance, FAR_TOO_MUCH))
    for _ in range(FAR_TOO_MUCH >> 20):
        writer.write(bytes(1 << 20))
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.startswith(b"HTTP/1.1 410 ")
    assert b"Problem: round-closed" in answer
    writer.close()
    assert not entrance.admission.open


async def test_an_aggregator_that_goes_away_within_an_upload_is_said_to_be_away(entrance: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        await request.content.readexactly(100_000)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    entrance.handler = handler
    reader, writer = await connection(entrance)
    writer.write(head(entrance, len(CONTENT)) + CONTENT)
    answer = await asyncio.wait_for(reader.read(), 30)  # to the end of the connection
    assert b"Problem: unreachable" in answer
    writer.close()
    assert not entrance.admission.open


async def test_a_silo_that_falls_silent_within_an_upload_is_told_so(
    entrance: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "SILENCE_SECONDS", 0.05)

    async def handler(request: web.Request) -> web.Response:
        await whole_body(request)
        return web.Response(status=204)

    async def body() -> AsyncIterator[bytes]:
        yield CONTENT[: 4 << 20]
        await asyncio.sleep(3600)

    entrance.handler = handler
    async with entrance.ask("PATCH", UPDATE, data=body(), headers=length(len(CONTENT))) as answer:
        assert (answer.status, answer.headers["Problem"]) == (400, "truncated")
    assert not entrance.admission.open


async def test_no_more_is_taken_from_a_silo_than_the_aggregator_takes(entrance: Place) -> None:
    go_on, sent = asyncio.Event(), 0

    async def handler(request: web.Request) -> web.Response:
        await go_on.wait()
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
        return web.Response(text=str(size))

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < FAR_TOO_MUCH:
            sent += 1 << 20
            yield bytes(1 << 20)

    entrance.handler = handler
    asking = asyncio.ensure_future(
        entrance.ask("PATCH", UPDATE, data=body(), headers=length(FAR_TOO_MUCH)).__aenter__()
    )
    before = -1
    while before != sent or not entrance.arrived:
        before = sent
        await asyncio.sleep(0.3)
    assert sent < FAR_TOO_MUCH // 2
    go_on.set()
    async with await asking as answer:
        assert await answer.text() == str(FAR_TOO_MUCH)


async def test_what_follows_an_upload_is_no_request(entrance: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await whole_body(request))))

    entrance.handler = handler
    reader, writer = await connection(entrance)
    writer.write(head(entrance, len(CONTENT)) + CONTENT + head(entrance, 0))
    answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(str(len(CONTENT)).encode())
    assert len(entrance.arrived) == 1
    writer.close()


async def connection(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", place.port, ssl=place.trusted)


def head(place: Place, size: int) -> bytes:
    lines = [f"PATCH {UPDATE} HTTP/1.1", "Host: gateway", f"Content-Length: {size}"]
    return "\r\n".join([*lines, f"Authorization: {place.proof('PATCH', UPDATE, NORTH)}", "", ""]).encode()
