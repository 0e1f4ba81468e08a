"""Requests about a job go on to the job's aggregator, and its answers back, as they are.

Nothing is held but the chunk under way, in either direction: a peer that reads or sends slowly slows down its own
request only, and a body of any size takes the memory of a chunk. What is forwarded stays bound by the silo's proof and
signature; the gateway checks the proof as well, so that strangers reach no aggregator.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from fedsilo.errors import Problem
from fedsilo.wire import VerifyKey, verify_request

log = logging.getLogger("fedsilo.gateway")

CHUNK_BYTES = 1 << 20
"""Bytes that are read ahead of a connection, in either direction."""

MAX_SMALL_BODY_BYTES = 16 << 10
"""Length of a body that a proof binds: a failure report."""

SILENCE_SECONDS = 90.0
"""Longest time without a byte from an aggregator, which answers a long poll after 60 s."""

_REQUEST_HEADERS = frozenset(
    {
        "Authorization",
        "Content-Length",
        "Content-Type",
        "Range",
        "Upload-Digest",
        "Upload-Length",
        "Upload-Offset",
    }
)
_ANSWER_HEADERS = frozenset(
    {
        *("Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "ETag", "Last-Modified"),
        *("Problem", "Upload-Complete", "Upload-Offset"),
    }
)


@dataclass(frozen=True)
class Upstream:
    """A job's aggregator.

    :param url: base URL inside the cluster.
    :param ca: PEM of the only authority whose certificate is accepted.
    :param keys: silo of the job, `namespace/name` -> its public key.
    """

    url: str
    ca: str
    keys: Mapping[str, VerifyKey]


class AggregatorUnreachable(Exception):
    """The job's aggregator does not answer, or broke off before its answer began."""


class Forwarding:
    """Forwards requests to the aggregators of jobs.

    :param upstream: uid of a job -> its aggregator; None for a job that is not known, or not reached from outside.
    :param max_connections: requests that one silo may have under way.
    """

    def __init__(self, upstream: Callable[[str], Upstream | None], max_connections: int) -> None:
        self._upstream = upstream
        self._max_connections = max_connections
        self._open: Counter[str] = Counter()
        self._sessions: dict[str, tuple[Upstream, aiohttp.ClientSession]] = {}

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Handle `/v1/jobs/{job}/...`.

        :raises Problem: when the request is refused here.
        :raises AggregatorUnreachable: when there is no answer.
        """
        job = request.match_info["job"]
        upstream = self._upstream(job)
        if upstream is None:
            raise Problem("wrong-job", f"no job {job} is open here")
        body = await _small_body(request) if request.method == "POST" else None
        silo = verify_request(
            request.headers.get("Authorization", ""),
            upstream.keys,
            job=job,
            method=request.method,
            path=request.raw_path,
            body=body,
            now=time.time(),
        )
        with self._counted(silo):
            return await self._exchange(request, self._session(job, upstream), upstream.url, body)

    async def close(self) -> None:
        """Close the connections to all aggregators."""
        for _, session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _exchange(
        self, request: web.Request, session: aiohttp.ClientSession, url: str, body: bytes | None
    ) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name in _REQUEST_HEADERS}
        data = body if body is not None else _pieces(request) if request.can_read_body else None
        try:
            answer = await session.request(
                request.method, f"{url}{request.raw_path}", headers=headers, data=data, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # When it is the silo that broke off, there is nobody left to answer.
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the silo has gone") from error
            raise AggregatorUnreachable(f"{type(error).__name__}: {error}") from error
        async with answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.update(
                {name: value for name, value in answer.headers.items() if name in _ANSWER_HEADERS}
            )
            await response.prepare(request)
            try:
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            except (aiohttp.ClientError, TimeoutError):
                # An answer that has begun can only be cut off: the silo notices, and goes on from there.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response

    def _session(self, job: str, upstream: Upstream) -> aiohttp.ClientSession:
        known = self._sessions.get(job)
        if known is not None and (known[0].url, known[0].ca) == (upstream.url, upstream.ca):
            return known[1]
        if known is not None:
            asyncio.get_running_loop().create_task(known[1].close())
        context = ssl.create_default_context(cadata=upstream.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_SECONDS),
            read_bufsize=CHUNK_BYTES,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._sessions[job] = upstream, session
        return session

    @contextmanager
    def _counted(self, silo: str) -> Iterator[None]:
        if self._open[silo] >= self._max_connections:
            raise Problem(
                "too-many-requests", f"{silo} has {self._open[silo]} requests under way; end one of them"
            )
        self._open[silo] += 1
        try:
            yield
        finally:
            self._open[silo] -= 1
            if not self._open[silo]:
                del self._open[silo]


async def _small_body(request: web.Request) -> bytes:
    content = bytearray()
    async for piece in request.content.iter_any():
        content += piece
        if len(content) > MAX_SMALL_BODY_BYTES:
            raise Problem("too-long", f"the body has more than {MAX_SMALL_BODY_BYTES} bytes")
    return bytes(content)


async def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    async for piece in request.content.iter_any():
        yield piece
