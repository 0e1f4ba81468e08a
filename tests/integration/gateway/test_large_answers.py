"""A large answer is relayed past the HTTP library: whole or broken, as fast as it is read, over lasting connections."""

from __future__ import annotations

import asyncio
import hashlib
import random

import aiohttp
import pytest
from aiohttp import web

from fedsilo_operator.gateway import forwarding
from fedsilo_operator.gateway.forwarding import LARGE_BYTES
from fedsilo_operator.gateway.relay import HIGH_WATER
from tests.integration.gateway.place import NORTH, Place, path_of

BLOB = path_of(f"blobs/{'ab' * 32}")
CONTENT = random.Random(7).randbytes(4 * LARGE_BYTES + 12345)
FAR_TOO_MUCH = 64 << 20
"""Bytes that no buffer on the way may take."""


async def read(place: Place, **headers: str) -> bytes:
    async with place.ask("GET", BLOB, headers=headers) as answer:
        assert answer.status in (200, 206)
        return bytes(await answer.read())


async def test_answers_come_whole_over_connections_that_are_used_again(place: Place) -> None:
    connections = set()

    async def handler(request: web.Request) -> web.Response:
        connections.add(request.transport)
        if request.path != BLOB:
            return web.Response(status=204)
        begin = int(request.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        return web.Response(body=CONTENT[begin:], status=206 if begin else 200)

    place.handler = handler
    for begin in (0, 0, 1, LARGE_BYTES - 1, len(CONTENT) - 5):
        found = await read(place, **({"Range": f"bytes={begin}-"} if begin else {}))
        assert hashlib.sha256(found).digest() == hashlib.sha256(CONTENT[begin:]).digest()
        async with place.ask("GET", path_of("task?after=&wait=0")) as answer:
            assert answer.status == 204
    assert len(connections) == 1
    assert not place.admission.open


async def test_an_answer_that_breaks_off_is_broken_off(place: Place) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(CONTENT))})
        await response.prepare(request)
        await response.write(CONTENT[: 2 * LARGE_BYTES])
        assert request.transport is not None
        request.transport.close()
        return response

    place.handler = handler
    with pytest.raises(aiohttp.ClientError):
        await read(place)
    assert not place.admission.open


async def test_what_follows_an_answer_is_no_part_of_it_nor_of_the_next(place: Place) -> None:
    async def too_long(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        transport.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode())
        transport.write(CONTENT + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlies")
        await asyncio.Event().wait()
        raise AssertionError

    async def honest_answer(request: web.Request) -> web.Response:
        return web.Response(body=b"true")

    place.handler = too_long
    assert await read(place) == CONTENT
    place.handler = honest_answer
    assert await read(place) == b"true"


async def test_an_aggregator_that_falls_silent_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "SILENCE_SECONDS", 0.05)

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(CONTENT))})
        await response.prepare(request)
        await response.write(CONTENT[: 2 * LARGE_BYTES])
        await asyncio.Event().wait()
        raise AssertionError

    place.handler = handler
    with pytest.raises(aiohttp.ClientError):
        await read(place)
    assert not place.admission.open


async def test_no_more_is_taken_from_an_aggregator_than_the_silo_takes(place: Place) -> None:
    sent, stuck = 0, asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Length": str(FAR_TOO_MUCH)})
        await response.prepare(request)
        while sent < FAR_TOO_MUCH:
            writing = asyncio.ensure_future(response.write(bytes(LARGE_BYTES)))
            done, _ = await asyncio.wait([writing], timeout=0.3)
            if not done:
                stuck.set()
            await writing
            sent += LARGE_BYTES
        return response

    place.handler = handler
    async with place.ask("GET", BLOB) as answer:
        await asyncio.wait_for(stuck.wait(), 30)
        assert sent < FAR_TOO_MUCH // 2
        (connection,) = place.connections()
        assert connection.get_write_buffer_size() < 2 * HIGH_WATER + (2 << 20)
        # It goes on as soon as it is read.
        assert len(await answer.read()) == FAR_TOO_MUCH


async def test_a_silo_that_hangs_up_ends_what_the_aggregator_sends(place: Place) -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(FAR_TOO_MUCH)})
        try:
            await response.prepare(request)
            for _ in range(FAR_TOO_MUCH // LARGE_BYTES):
                await response.write(bytes(LARGE_BYTES))
        finally:
            ended.set()
        return response

    place.handler = handler
    async with place.ask("GET", BLOB) as answer:
        await answer.content.readexactly(LARGE_BYTES)
        assert place.admission.open == {NORTH: 1}
        answer.close()
    await asyncio.wait_for(ended.wait(), 30)
    while place.admission.open:
        await asyncio.sleep(0)
