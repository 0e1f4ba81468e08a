"""Requests about a job go on to the job's aggregator, and its answers back, as they are.

Nothing is held but the chunk under way, in either direction: a peer that reads or sends slowly slows down its own
request only, and a body of any size takes the memory of a chunk. A connection that breaks on one side is broken on the
other, so that a part never passes for the whole. What is forwarded stays bound by the silo's proof and signature; the
gateway checks the proof as well, so that strangers reach no aggregator.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from fedsilo.data.schema import MAX_SCHEMA_BYTES
from fedsilo.errors import Problem
from fedsilo.http.listener import ConnectionStore
from fedsilo.readiness.statement import MAX_READINESS_BYTES
from fedsilo.wire import VerifyKey, claimed_sender, verify_request
from fedsilo_operator.gateway.bodies import MAX_SMALL_BODY_BYTES, small_body
from fedsilo_operator.gateway.limits import SILENCE_SECONDS, RequestAccount
from fedsilo_operator.gateway.relay import relay_answer
from fedsilo_operator.gateway.upload import Upload

log = logging.getLogger("fedsilo.gateway")

CHUNK_BYTES = 256 << 10
"""Bytes that are read ahead of a connection, in either direction; aiohttp holds up to twice as many."""

LARGE_BYTES = 1 << 20
"""Length of an answer that is relayed past the HTTP library."""

AUTHORITIES = 256
"""Aggregators whose TLS settings are kept; of others they are made anew."""

LONG_BODIES = {"schema": MAX_SCHEMA_BYTES, "readiness": MAX_READINESS_BYTES}
"""Last part of a path -> length of a body that is no short report."""

METHODS = ("GET", "HEAD", "PATCH", "POST")

_REQUEST_HEADERS = frozenset(
    {"authorization", "content-type", "range", "upload-digest", "upload-length", "upload-offset"}
)
_ANSWER_HEADERS = frozenset(
    {
        *("accept-ranges", "content-length", "content-range", "content-type", "etag", "last-modified"),
        *("problem", "upload-complete", "upload-offset"),
    }
)
_OWN_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What the client would add of its own."""


@dataclass(frozen=True)
class Route:
    """A silo's way to the aggregator of one job.

    :param url: base URL inside the cluster.
    :param ca: PEM of the only authority whose certificate is accepted.
    :param key: the silo's public key in this job.
    :param closed: why the silo may ask nothing any more, if it may not.
    """

    url: str
    ca: str
    key: VerifyKey
    closed: Problem | None = None


class ForwardingService:
    """Forwards requests to the aggregators of jobs.

    :param routes: uid of a job, silo -> the silo's way to the job's aggregator; None where none is known.
    """

    def __init__(self, routes: Callable[[str, str], Route | None], admission: RequestAccount) -> None:
        self._routes = routes
        self._admission = admission
        self._client: aiohttp.ClientSession | None = None

    @property
    def connections(self) -> ConnectionStore:
        """Open connections of silos with the service."""
        return self._admission.connections

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward a request for `/v1/jobs/{job}/...` to the job's aggregator.

        :raises Problem: when the request is refused here.
        """
        job = request.match_info["job"]
        # The path goes on as it came, so nothing but a path may have come: a request can name a whole URL.
        if not request.raw_path.startswith(f"/v1/jobs/{job}/"):
            raise Problem("malformed", f"{request.raw_path[:200]}: send the path of the job, and no more")
        limit = LONG_BODIES.get(request.path.rpartition("/")[2], MAX_SMALL_BODY_BYTES)
        body = await small_body(request, limit) if request.method == "POST" else None
        proof = request.headers.get("Authorization", "")
        silo = claimed_sender(proof)
        route = self._routes(job, silo)
        if route is None:
            # Not final: this process may know less than the one that the silo was told by.
            raise Problem("unreachable", f"no part of silo {silo} in a job {job} is known here")
        verify_request(
            proof,
            {silo: route.key},
            job=job,
            method=request.method,
            path=request.raw_path,
            body=body,
            now=time.time(),
        )
        if route.closed is not None:
            raise route.closed
        with self._admission.request(silo, request.protocol):
            return await self._exchange(request, silo, route, self._data(request, body))

    async def close(self) -> None:
        """Close the connections to all aggregators."""
        if self._client is not None:
            await self._client.close()

    def _data(self, request: web.Request, body: bytes | None) -> Upload | bytes | None:
        if body is not None:
            return body
        if not request.can_read_body:
            return None
        if request.method != "PATCH":
            raise Problem("malformed", f"{request.method} has a body; send it without")
        limit = self._admission.limits.body_bytes
        if (request.content_length or 0) > limit:
            raise Problem(
                "too-long", f"the body has {request.content_length} bytes; at most {limit} are taken"
            )
        return Upload(request, limit)

    async def _exchange(
        self, request: web.Request, silo: str, route: Route, data: Upload | bytes | None
    ) -> web.StreamResponse:
        headers = CIMultiDict(
            (name, value) for name, value in request.headers.items() if name.lower() in _REQUEST_HEADERS
        )
        if isinstance(data, Upload) and request.content_length is not None:
            headers["Content-Length"] = str(request.content_length)
        try:
            answer = await self._session().request(
                request.method,
                URL(route.url + request.raw_path, encoded=True),
                headers=headers,
                data=data,
                ssl=_tls(route.ca),
                allow_redirects=False,
                skip_auto_headers=_OWN_HEADERS,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if isinstance(data, Upload) and data.problem is not None:
                raise data.problem from error
            raise Problem(
                "unreachable", f"the aggregator does not answer: {type(error).__name__}: {error}"
            ) from error
        async with answer:
            # An aggregator holds a request for up to a minute, and a silo may be revoked meanwhile.
            present = self._routes(request.match_info["job"], silo)
            if present is not None and present.closed is not None:
                raise present.closed
            return await _pass_on(request, answer, lasts=not (isinstance(data, Upload) and data.is_large))

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_SECONDS),
                read_bufsize=CHUNK_BYTES,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client


async def _pass_on(
    request: web.Request, answer: aiohttp.ClientResponse, *, lasts: bool
) -> web.StreamResponse:
    if not _ends_visibly(request, answer):
        raise Problem("unreachable", "the aggregator's answer does not say where it ends")
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend(
        [(name, value) for name, value in answer.headers.items() if name.lower() in _ANSWER_HEADERS]
    )
    # Whoever ends TLS on the way, an institution's proxy included, shall neither keep nor change it.
    response.headers["Cache-Control"] = "no-store, no-transform"
    if not lasts:
        response.force_close()
    writer = await response.prepare(request)
    try:
        if writer is not None and _is_large(request, answer):
            await relay_answer(answer, request, writer, SILENCE_SECONDS)
        async for piece in answer.content.iter_any():
            async with asyncio.timeout(SILENCE_SECONDS):
                await response.write(piece)
        async with asyncio.timeout(SILENCE_SECONDS):
            await response.write_eof()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        # An answer that has begun can only be cut off: the silo notices, and goes on from there.
        if request.transport is not None:
            request.transport.abort()
        log.warning("%s %s: cut off: %s: %s", request.method, request.path, type(error).__name__, error)
        raise ConnectionResetError("the answer was cut off") from error
    return response


def _ends_visibly(request: web.Request, answer: aiohttp.ClientResponse) -> bool:
    """Whether an end of the connection cannot be taken for the end of the answer (RFC 9112, section 6.3)."""
    without_body = request.method == "HEAD" or answer.status in (204, 304)
    chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
    return without_body or chunked or "Content-Length" in answer.headers


def _is_large(request: web.Request, answer: aiohttp.ClientResponse) -> bool:
    """Whether it is worth while to take the connection from the library for the body."""
    has_body = request.method != "HEAD" and answer.status in (200, 206)
    return (
        has_body and "Transfer-Encoding" not in answer.headers and (answer.content_length or 0) >= LARGE_BYTES
    )


@lru_cache(AUTHORITIES)
def _tls(ca: str) -> ssl.SSLContext:
    """One for each authority: connections are kept open by it."""
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
