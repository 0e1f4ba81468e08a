"""The gateway passes on bytes as they are: all of them, in both directions, or a broken connection."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from fedsilo.errors import Problem
from fedsilo.http.refusals import problem_response
from fedsilo_operator.gateway import bodies, forwarding, limits, upload
from tests.integration.gateway.place import NORTH, SOUTH, Place, path_of

MIB = 1 << 20
UPDATE = path_of("updates/r00001-train-north")
BLOB = path_of(f"blobs/{'ab' * 32}")
REVOKED_PROBLEM = Problem("unknown-sender", "silo was revoked")
PIECE = bytes(range(256)) * 1024


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield PIECE


async def test_an_upload_arrives_as_it_was_sent(place: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert await request.read() == b"an update"
        return web.json_response({"task": "t"}, status=201)

    place.handler = handler
    headers = {"upload-offset": "7", "Upload-Length": "16", "Upload-Digest": "ab" * 32, "Cookie": "a=b"}
    async with place.ask("PATCH", UPDATE, data=b"an update", headers=headers) as answer:
        assert (answer.status, await answer.json()) == (201, {"task": "t"})
        assert answer.headers["Cache-Control"] == "no-store, no-transform"
    arrived = place.arrived[0]
    assert arrived.raw_path == UPDATE
    assert arrived.headers["Upload-Offset"] == "7"
    assert arrived.headers["Content-Length"] == "9"
    assert arrived.headers["Authorization"].startswith("Fedsilo ")
    assert "Cookie" not in arrived.headers
    assert "Accept-Encoding" not in arrived.headers


async def test_a_path_arrives_to_the_letter(place: Place) -> None:
    """The proof binds the path as it was sent: nothing may write it in another way."""
    path = path_of("task?after=r1%2Dt%7e&wait=0")

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=204)

    place.handler = handler
    url = URL(f"https://127.0.0.1:{place.port}{path}", encoded=True)
    async with place.client.get(url, headers={"Authorization": place.proof("GET", path)}) as answer:
        assert answer.status == 204
    assert place.arrived[0].raw_path == path


async def test_a_range_of_a_blob_and_an_answer_without_body_come_back(place: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.method == "HEAD":
            return web.Response(headers={"Upload-Complete": "?0", "Upload-Offset": "12"})
        assert request.headers["Range"] == "bytes=5-"
        return web.Response(status=206, body=b"world", headers={"Content-Range": "bytes 5-9/10"})

    place.handler = handler
    async with place.ask("GET", BLOB, headers={"Range": "bytes=5-"}) as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (206, "bytes 5-9/10")
        assert await answer.read() == b"world"
    async with place.ask("HEAD", UPDATE) as answer:
        assert answer.headers["Upload-Offset"] == "12"
        assert answer.headers["Upload-Complete"] == "?0"


async def test_a_refusal_of_the_aggregator_comes_back_as_it_is(place: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return problem_response(Problem("round-closed", "too late"))

    place.handler = handler
    async with place.ask("POST", path_of("failures/t"), body=b'{"reason": "A", "message": ""}') as answer:
        assert (answer.status, answer.headers["Problem"]) == (410, "round-closed")
        assert (await answer.json())["detail"] == "too late"
    assert place.service.refused == {}


async def test_an_upload_that_breaks_off_never_arrives_as_a_shorter_whole(place: Place) -> None:
    """The end of a body of unknown length must not be made up either."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def handler(request: web.Request) -> web.Response:
        try:
            ends.put_nowait("whole" if await request.read() else "empty")
        except (asyncio.CancelledError, OSError, web.RequestPayloadError):
            ends.put_nowait("broken")
            raise
        return web.Response(status=204)

    async def body() -> AsyncIterator[bytes]:
        yield PIECE
        while not place.arrived:
            await asyncio.sleep(0)
        raise ValueError("the silo's process ends")

    place.handler = handler
    for headers in ({"Content-Length": str(10 * len(PIECE))}, {}):
        place.arrived.clear()
        with pytest.raises(aiohttp.ClientError):
            async with place.ask("PATCH", UPDATE, data=body(), headers=headers):
                pass
        assert await asyncio.wait_for(ends.get(), 30) == "broken"


@pytest.mark.parametrize("length", ["1000000", None], ids=["of known length", "chunked"])
async def test_an_answer_that_breaks_off_is_broken_off(place: Place, length: str | None) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": length} if length else {})
        await response.prepare(request)
        await response.write(b"x" * 1000)
        assert request.transport is not None
        request.transport.close()
        return response

    place.handler = handler
    with pytest.raises(aiohttp.ClientError):
        async with place.ask("GET", BLOB) as answer:
            await answer.read()


async def test_an_answer_whose_end_cannot_be_told_from_a_cut_is_refused(place: Place) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it?")
        request.transport.close()
        raise asyncio.CancelledError

    place.handler = handler
    async with place.ask("GET", BLOB) as answer:
        assert (answer.status, answer.headers["Problem"]) == (503, "unreachable")


async def test_a_silo_that_hangs_up_ends_its_long_poll(place: Place) -> None:
    """Otherwise dead polls would soon be all that the silo may have."""
    polling, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        polling.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    place.handler = handler
    poll = asyncio.ensure_future(place.ask("GET", path_of("task?after=&wait=60")).__aenter__())
    await polling.wait()
    assert place.admission.open == {NORTH: 1}
    poll.cancel()
    await asyncio.wait_for(ended.wait(), 30)
    while place.admission.open:
        await asyncio.sleep(0)


async def test_an_aggregator_that_is_gone_is_said_to_be_away(place: Place) -> None:
    place.routes[NORTH] = replace(place.routes[NORTH], url="https://127.0.0.1:1")
    async with place.ask("GET", path_of("task?after=&wait=0")) as answer:
        assert (answer.status, answer.headers["Problem"]) == (503, "unreachable")
    place.routes = {}
    async with place.ask("GET", path_of("task?after=&wait=0")) as answer:
        assert (answer.status, answer.headers["Problem"]) == (503, "unreachable")
    assert place.service.refused == {"unreachable": 2}


async def test_an_aggregator_with_another_certificate_is_none(place: Place) -> None:
    place.routes[NORTH] = replace(place.routes[NORTH], ca=place.own_authority.cert_pem.decode())
    async with place.ask("GET", path_of("task?after=&wait=0")) as answer:
        assert (answer.status, answer.headers["Problem"]) == (503, "unreachable")
    assert place.arrived == []


async def test_strangers_and_revoked_silos_reach_no_aggregator(place: Place) -> None:
    path = path_of("task?after=&wait=0")
    wrong = place.proof("GET", path_of("task?after=x&wait=0"))
    for proof, code in (("", "malformed"), ("Bearer abc", "malformed"), (wrong, "signature-invalid")):
        async with place.ask("GET", path, headers={"Authorization": proof}) as answer:
            assert answer.headers["Problem"] == code
    place.routes[SOUTH] = replace(place.routes[SOUTH], closed=REVOKED_PROBLEM)
    async with place.ask("GET", path, SOUTH) as answer:
        assert (answer.status, answer.headers["Problem"]) == (403, "unknown-sender")
    assert place.arrived == []


async def test_a_silo_that_is_revoked_while_the_aggregator_holds_its_request_gets_no_answer(
    place: Place,
) -> None:
    async def handler(_: web.Request) -> web.Response:
        place.routes[NORTH] = replace(place.routes[NORTH], closed=REVOKED_PROBLEM)
        return web.Response(body=b"a task")

    place.handler = handler
    async with place.ask("GET", path_of("task?after=&wait=60")) as answer:
        assert (answer.status, answer.headers["Problem"]) == (403, "unknown-sender")
        assert b"a task" not in await answer.read()
    assert len(place.arrived) == 1


@pytest.mark.parametrize(
    "target", ["https://evil.example/v1/jobs/{job}/task", "//evil.example/v1/jobs/{job}/task"]
)
async def test_a_silo_cannot_have_the_gateway_ask_another_server(place: Place, target: str) -> None:
    path = target.format(job=path_of("").split("/")[3])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        place.port,
        ssl=place.client.connector._ssl,  # type: ignore[union-attr]
    )
    proof = place.proof("GET", path)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: {proof}\r\n\r\n".encode()
    )
    head = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert b" 400 " in head
    assert place.arrived == []


async def test_a_silo_that_uses_up_its_requests_holds_up_no_other(place: Place) -> None:
    release = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response(status=204)

    async def ask(silo: str) -> int:
        async with place.ask("GET", path_of("task?after=&wait=60"), silo) as answer:
            return int(answer.status)

    place.handler = handler
    held = [asyncio.ensure_future(ask(NORTH)) for _ in range(3)]
    while len(place.arrived) < 3:
        await asyncio.sleep(0)
    async with place.ask("GET", path_of("task?after=&wait=60")) as answer:
        assert (answer.status, answer.headers["Problem"]) == (429, "too-many-requests")
    other = asyncio.ensure_future(ask(SOUTH))
    while len(place.arrived) < 4:
        await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(*held, other) == [204] * 4


@pytest.mark.parametrize("method", ["PATCH", "POST"])
async def test_a_body_that_must_be_unpacked_is_refused(place: Place, method: str) -> None:
    """What it unpacks to is neither what was sent nor as long as it says."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=204)

    place.handler = handler
    packed = gzip.compress(bytes(MIB))
    path = UPDATE if method == "PATCH" else path_of("failures/t")
    headers = {"Content-Encoding": "gzip"}
    async with place.ask(method, path, data=packed, headers=headers) as answer:
        assert (answer.status, answer.headers["Problem"]) == (415, "unsupported")
    assert place.arrived == []


async def test_bodies_have_a_limit(place: Place) -> None:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    place.handler = handler
    place.admission.limits = replace(place.admission.limits, body_bytes=len(PIECE))
    async with place.ask("PATCH", UPDATE, data=PIECE + b"x") as answer:
        assert answer.headers["Problem"] == "too-long"
    assert place.arrived == []
    async with place.ask("PATCH", UPDATE, data=pieces(2)) as answer:
        assert answer.headers["Problem"] == "too-long"
    body = b"x" * (bodies.MAX_SMALL_BODY_BYTES + 1)
    async with place.ask("POST", path_of("failures/t"), body=body) as answer:
        assert answer.headers["Problem"] == "too-long"
    async with place.ask("GET", BLOB, data=b"x") as answer:
        assert answer.headers["Problem"] == "malformed"


async def test_a_silo_that_falls_silent_within_its_upload_is_dropped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "SILENCE_SECONDS", 0.05)

    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    async def body() -> AsyncIterator[bytes]:
        yield PIECE
        await asyncio.sleep(3600)

    place.handler = handler
    async with place.ask("PATCH", UPDATE, data=body()) as answer:
        assert (answer.status, answer.headers["Problem"]) == (400, "truncated")
    assert not place.admission.open


async def test_a_reader_that_falls_silent_is_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "SILENCE_SECONDS", 0.05)
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(256 * MIB)})
        await response.prepare(request)
        try:
            for _ in range(1024):
                await response.write(PIECE)
        finally:
            ended.set()
        return response

    place.handler = handler
    with pytest.raises(aiohttp.ClientError):
        async with place.ask("GET", BLOB) as answer:
            await asyncio.wait_for(ended.wait(), 30)  # it reads nothing
            await answer.read()
    while place.admission.open:
        await asyncio.sleep(0)


async def test_memory_does_not_grow_with_a_body(place: Place) -> None:
    """What all three parties of this process hold of 64 MiB each way, far below one copy of it."""
    count = 64 * MIB // len(PIECE)
    received = hashlib.sha256()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            async for piece in request.content.iter_any():
                received.update(piece)
            return web.Response(status=204)
        response = web.StreamResponse(headers={"Content-Length": str(count * len(PIECE))})
        await response.prepare(request)
        for _ in range(count):
            await response.write(PIECE)
        return response

    place.handler = handler
    wanted = hashlib.sha256(PIECE * count).hexdigest()
    tracemalloc.start()
    try:
        async with place.ask("PATCH", UPDATE, data=pieces(count)) as answer:
            assert answer.status == 204
        returned = hashlib.sha256()
        async with place.ask("GET", BLOB) as answer:
            async for piece in answer.content.iter_any():
                returned.update(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert received.hexdigest() == returned.hexdigest() == wanted
    assert peak < 12 * MIB


def test_a_silo_may_ask_as_often_as_the_rate_allows() -> None:
    now = 0.0
    admission = limits.RequestAccount(limits.Limits(requests_per_second=2, burst=3), lambda: now)

    def ask(silo: str) -> bool:
        try:
            with admission.request(silo):
                return True
        except Problem as problem:
            assert problem.code == "too-many-requests"
            return False

    assert [ask(NORTH) for _ in range(4)] == [True, True, True, False]
    assert ask(SOUTH), "another silo is not affected"
    now = 0.5
    assert [ask(NORTH) for _ in range(2)] == [True, False]
    now = 1000.0
    assert [ask(NORTH) for _ in range(4)] == [True, True, True, False]
