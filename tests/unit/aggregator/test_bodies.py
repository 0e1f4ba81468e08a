"""Large bodies over real TLS, with either event loop: they arrive whole, and the connection lives on."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web

from fedsilo.http.large_body import LARGE_BYTES, LargeBody, file_pieces
from fedsilo.http.listener import TLS_BYTES, ConnectionStore, Listener
from fedsilo.http.refusals import RefusingRunner, problem_response
from fedsilo.http.threads import take_in_thread
from fedsilo.hub.answer_body import answer_pieces
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import issue_server, make_authority
from fedsilo_aggregator.bodies import FileBody, request_pieces
from fedsilo_aggregator.request_fields import asked_part
from fedsilo_aggregator.rounds import READ_BYTES, server_context

SIZE = 5 * LARGE_BYTES + 3
CONTENT = hashlib.shake_128(b"content").digest(SIZE)

Run = Callable[[Callable[["Place"], Awaitable[None]]], None]


@dataclass
class Place:
    """A server that hashes what it is sent, and gives one file.

    :ivar digests: of bodies that came whole.
    :ivar errors: of those that did not.
    :ivar taken: large bodies that have come.
    """

    folder: Path
    port: int = 0
    digests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    connections: ConnectionStore = field(default_factory=ConnectionStore)
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None

    @property
    def file(self) -> Path:
        return self.folder / "content"

    async def put(self, request: web.Request) -> web.Response:
        digest, refuse = hashlib.sha256(), "refuse" in request.query

        def take(piece: bytes | memoryview) -> None:
            if refuse:
                raise ValueError
            digest.update(piece)

        try:
            async with aclosing(request_pieces(request)) as body:
                await take_in_thread(body, take)
        except ValueError:
            return web.Response(status=400)
        except OSError as error:
            self.errors.append(type(error).__name__)
            raise
        self.digests.append(digest.hexdigest())
        return web.Response(status=201)

    async def get(self, request: web.Request) -> web.StreamResponse:
        if self.answer is not None:
            return await self.answer(request)
        return FileBody(FileIO(self.file), asked_part(request, SIZE), self.sent.append)

    @asynccontextmanager
    async def served_client(self) -> AsyncIterator[HttpsClient]:
        """Serve bodies over TLS on loopback; a client of the server."""
        authority = make_authority()
        for name, content in zip(("crt", "key"), issue_server(authority, ["127.0.0.1"]), strict=True):
            (self.folder / name).write_bytes(content)
        app = web.Application()
        app.router.add_put("/", self.put)
        app.router.add_get("/", self.get)
        runner = RefusingRunner(
            app,
            lambda _, problem: problem_response(problem),
            self.connections,
            access_log=None,
            read_bufsize=READ_BYTES,
            auto_decompress=False,
            shutdown_timeout=0.1,
        )
        await runner.setup()
        context = server_context(self.folder / "crt", self.folder / "key")
        listener = Listener(runner, self.connections, "127.0.0.1", 0, context)
        await listener.start()
        self.port = listener.port
        self.authority = authority.cert_pem.decode()
        try:
            async with HttpsClient(f"https://127.0.0.1:{self.port}", self.authority, {}) as client:
                yield client
        finally:
            await runner.cleanup()

    async def raw_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to it."""
        context = ssl.create_default_context(cadata=self.authority)
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="127.0.0.1")


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    def run(work: Callable[[Place], Awaitable[None]]) -> None:
        found = Place(tmp_path)
        found.file.write_bytes(CONTENT)

        async def main() -> None:
            async with asyncio.timeout(60):
                await work(found)
            assert LargeBody.open_now == 0

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def upload(place: Place, client: HttpsClient, query: str = "") -> int:
    with FileIO(place.file) as file:
        headers = {"Content-Length": str(SIZE)}
        async with client.request("PUT", "/" + query, headers, file_pieces(file, 0, SIZE)) as response:
            return response.status


async def download(client: HttpsClient, begin: int) -> str:
    digest = hashlib.sha256()
    async with (
        client.request("GET", "/", {"Range": f"bytes={begin}-"}) as response,
        aclosing(answer_pieces(response)) as body,
    ):
        await take_in_thread(body, digest.update)
    return digest.hexdigest()


def test_one_connection_carries_large_bodies_in_both_directions_one_after_another(place: Run) -> None:
    async def work(place: Place) -> None:
        async with place.served_client() as client:
            for begin in (0, 1, 3 * LARGE_BYTES, SIZE - 5):
                assert await upload(place, client) == 201
                assert await download(client, begin) == hashlib.sha256(CONTENT[begin:]).hexdigest()
            assert place.digests == [DIGEST] * 4
            assert place.sent == [SIZE, SIZE - 1, SIZE - 3 * LARGE_BYTES, 5]
            assert len(place.connections) == 1

    place(work)


def test_a_request_that_follows_in_the_same_bytes_is_answered(place: Run) -> None:
    async def work(place: Place) -> None:
        async with place.served_client():
            reader, writer = await place.raw_connection()
            head = f"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n".encode()
            writer.write(3 * (head + CONTENT))
            for _ in range(3):
                assert await reader.readline() == b"HTTP/1.1 201 Created\r\n"
                while await reader.readline() != b"\r\n":
                    pass
            assert place.digests == [DIGEST] * 3
            writer.close()

    place(work)


def test_tls_keeps_little_for_a_connection(place: Run) -> None:
    async def limits(request: web.Request) -> web.Response:
        transport: Any = request.transport
        assert max(transport.get_write_buffer_limits()) == TLS_BYTES
        assert max(transport.get_read_buffer_limits()) == TLS_BYTES
        return web.Response(status=204)

    async def work(place: Place) -> None:
        place.answer = limits
        async with place.served_client() as client, client.request("GET", "/", {}) as response:
            assert response.status == 204

    place(work)


def test_a_refusal_in_the_middle_reaches_the_sender_and_the_connection_lives_on(place: Run) -> None:
    async def work(place: Place) -> None:
        async with place.served_client() as client:
            assert await upload(place, client, "?refuse") == 400
            assert await upload(place, client) == 201
            assert len(place.connections) == 1

    place(work)


def test_a_sender_that_breaks_off_leaves_nothing(place: Run) -> None:
    async def work(place: Place) -> None:
        async with place.served_client():
            _, writer = await place.raw_connection()
            writer.write(f"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n".encode())
            writer.write(CONTENT[: SIZE // 2])
            await writer.drain()
            while not LargeBody.open_now:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            while not place.errors or len(place.connections):
                await asyncio.sleep(0.001)
            assert place.errors == ["ConnectionResetError"]
            assert place.digests == []

    place(work)


def test_the_end_of_the_service_waits_for_no_body(place: Run) -> None:
    async def work(place: Place) -> None:
        async with place.served_client():
            _, writer = await place.raw_connection()
            writer.write(f"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n".encode())
            writer.write(CONTENT[: SIZE // 2])
            while not LargeBody.open_now:
                await asyncio.sleep(0.001)
        assert place.digests == []
        writer.close()

    place(work)


@pytest.mark.parametrize("cut", [LARGE_BYTES, SIZE - 1])
def test_an_answer_that_breaks_off_is_an_error(place: Run, cut: int) -> None:
    async def work(place: Place) -> None:
        async with place.served_client() as client:
            place.answer = answering(CONTENT[:cut], b"")
            with pytest.raises(Unreachable):
                await download(client, 0)

    place(work)


def test_what_follows_an_answer_uninvited_is_no_answer(place: Run) -> None:
    """A server that says more than it announced does not speak for the next answer."""

    async def work(place: Place) -> None:
        async with place.served_client() as client:
            place.answer = answering(CONTENT, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse")
            assert await download(client, 0) == DIGEST
            place.answer = None
            assert await download(client, 0) == DIGEST, "over the connection on which the other bytes came"
            assert len(place.connections) == 1

    place(work)


def answering(content: bytes, after: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Answer with bytes that are said to be `SIZE`, and either with others that follow, or the connection's end."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = SIZE
        await response.prepare(request)
        await response.write(content)
        assert request.transport is not None
        if after:
            request.transport.write(after)
        else:
            request.transport.close()
        return response

    return answer
