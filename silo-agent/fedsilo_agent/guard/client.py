"""The guard's connection to the aggregator: outgoing HTTPS only, every request with its proof, everything resumable."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp

from fedsilo.durable import sync_directory
from fedsilo.errors import Problem
from fedsilo.wire import MAX_ENVELOPE_BYTES, BlobLink, SigningKey, sign_request
from fedsilo.wire.problems import STATUS, one_line

log = logging.getLogger("fedsilo.guard")

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 2.0
"""Pauses between tries, doubling from the first to the last, with jitter."""

REMINDER_SECONDS = 60.0
"""Interval at which a reason that keeps coming back is logged again: an aggregator may be down for long."""

RETRIED_CODES = frozenset(
    {"storage-full", "offset-mismatch", "proof-expired", "truncated", "range-not-satisfiable"}
)
"""Refusals that are temporary: a disk gets space, an offset is read anew, a clock is set, a blob is whole again."""


class AggregatorUnavailable(Exception):
    """The aggregator cannot be reached or does not speak the protocol now; trying again may help."""


@dataclass(frozen=True)
class Peer:
    """The aggregator to talk to, and the identity to use.

    :param url: base URL of the aggregator.
    :param ca: PEM of the only authority whose certificate is accepted.
    :param sender: `namespace/name` of the silo.
    """

    url: str
    ca: str
    job: str
    sender: str
    key: SigningKey


class AggregatorClient:
    """The verbs of the protocol. Each tries again until it has an answer or a final refusal."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._session: aiohttp.ClientSession | None = None
        self.answered: float | None = None
        """When the aggregator answered last (Unix time), whatever it was."""
        self.received = 0
        """Bytes of blobs."""

    async def __aenter__(self) -> AggregatorClient:
        context = ssl.create_default_context(cadata=self._peer.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Only progress counts: no limit on the total time, one on silence.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=90)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), timeout=timeout, read_bufsize=CHUNK_BYTES
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def task(self, after: str, wait: float) -> bytes | None:
        """The sealed task for this silo, unless it is still the one given in `after`."""
        path = f"{self._base}/task?after={after}&wait={wait:g}"

        async def once() -> bytes | None:
            async with self._request("GET", path) as response:
                return None if response.status == 204 else await _bounded(response, MAX_ENVELOPE_BYTES)

        return await self._retry(f"task after {after or 'the start'}", once)

    async def download(self, link: BlobLink, path: Path) -> None:
        """Fetch a blob to a file, going on where an earlier try ended, and check its digest.

        :raises Problem: `digest-mismatch` when the complete blob is not what the task names.
        """
        part = path.with_name(f".{path.name}.part")
        await self._retry(f"blob {link.digest[:12]}", lambda: self._download_rest(link, part))
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if digest != link.digest:
            part.unlink()
            raise Problem(
                "digest-mismatch", f"blob {link.name}: received {digest}, the task names {link.digest}"
            )
        part.replace(path)
        sync_directory(path.parent)

    async def upload(self, task: str, path: Path, digest: str) -> None:
        """Send a signed update until it is acknowledged as durable.

        :raises Problem: when it is refused for good.
        """
        await self._retry(f"update of {task}", lambda: self._upload_rest(task, path, digest))

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        """Report why there will be no update for a task."""
        body = json.dumps({"reason": reason, "message": message[:4000]}).encode()

        async def once() -> None:
            async with self._request("POST", f"{self._base}/failures/{task}", data=body, proven=body):
                return

        await self._retry(f"failure of {task}", once)

    @property
    def _base(self) -> str:
        return f"/v1/jobs/{self._peer.job}"

    async def _download_rest(self, link: BlobLink, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0
        if have >= link.length:
            return
        headers = {"Range": f"bytes={have}-"} if have else {}
        async with self._request("GET", f"{self._base}/blobs/{link.digest}", headers=headers) as response:
            with part.open("ab" if response.status == 206 else "wb") as file:
                async for piece in response.content.iter_chunked(CHUNK_BYTES):
                    self.received += file.write(piece)
                    if file.tell() > link.length:
                        break
        size = part.stat().st_size
        if size > link.length:
            part.unlink()
        if size != link.length:
            raise AggregatorUnavailable(f"{size} of {link.length} bytes arrived")

    async def _upload_rest(self, task: str, path: Path, digest: str) -> None:
        length = path.stat().st_size
        url = f"{self._base}/updates/{task}"
        async with self._request("HEAD", url, headers={"Upload-Digest": digest}) as response:
            if response.headers.get("Upload-Complete") == "?1":
                return
            offset = _offset(response, length)
        headers = {
            "Upload-Offset": str(offset),
            "Upload-Length": str(length),
            "Upload-Digest": digest,
            "Content-Type": "application/vnd.fedsilo.update",
            "Content-Length": str(length - offset),
        }
        async with self._request("PATCH", url, headers=headers, data=_chunks(path, offset)) as response:
            if response.status == 204:
                raise AggregatorUnavailable(
                    f"{response.headers.get('Upload-Offset')} of {length} bytes arrived"
                )

    def _request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        data: bytes | AsyncIterator[bytes] | None = None,
        proven: bytes | None = None,
    ) -> _Response:
        assert self._session is not None
        peer = self._peer
        proof = sign_request(
            peer.key, job=peer.job, sender=peer.sender, method=method, path=path, body=proven, now=time.time()
        )
        return _Response(
            # Without redirects: the guard talks to no other server than the aggregator that the silo admitted.
            self._session.request(
                method,
                f"{peer.url}{path}",
                headers={"Authorization": proof, **(headers or {})},
                data=data,
                allow_redirects=False,
            )
        )

    async def _retry(self, what: str, once: Callable[[], Awaitable[T]]) -> T:
        """Try until there is an answer: the other side may not be up yet, be restarted, or have no name so far."""
        pause, logged, silent_until = FIRST_RETRY_SECONDS, "", 0.0
        while True:
            try:
                answer = await once()
                self.answered = time.time()
                return answer
            except Problem as problem:
                self.answered = time.time()
                if problem.code not in RETRIED_CODES:
                    raise
                reason = str(problem)
            except (aiohttp.ClientError, OSError, TimeoutError, AggregatorUnavailable) as error:
                reason = f"{type(error).__name__}: {error}"
            now = time.monotonic()
            if reason != logged or now >= silent_until:
                log.warning("%s: %s; trying again until there is an answer", what, reason)
                logged, silent_until = reason, now + REMINDER_SECONDS
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_RETRY_SECONDS)


class _Response:
    """A response whose refusal is raised as the `Problem` that it carries."""

    def __init__(self, request: object) -> None:
        self._request = request

    async def __aenter__(self) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._request.__aenter__()  # type: ignore[attr-defined]
        if response.status >= 300:
            try:
                raise await _problem(response)
            finally:
                response.release()
        return response

    async def __aexit__(self, *error: object) -> None:
        await self._request.__aexit__(*error)  # type: ignore[attr-defined]


async def _problem(response: aiohttp.ClientResponse) -> Exception:
    try:
        document = json.loads(await _bounded(response, MAX_ENVELOPE_BYTES))
        code = document["type"].removeprefix("urn:fedsilo:problem:")
        detail = document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AggregatorUnavailable):
        # HEAD has no body to carry a document; a proxy may answer in a format of its own.
        code, detail = response.headers.get("Problem", ""), f"status {response.status}"
    if code in STATUS:
        return Problem(code, one_line(detail))
    return AggregatorUnavailable(f"status {response.status} {response.reason}")


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of a response, limited so that it cannot fill the guard's memory."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            raise AggregatorUnavailable(f"an answer of more than {limit} bytes")
    return bytes(body)


def _offset(response: aiohttp.ClientResponse, length: int) -> int:
    text = response.headers.get("Upload-Offset", "")
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) > length:
        raise AggregatorUnavailable(f"Upload-Offset {text[:32]!r} is no position in {length} bytes")
    return int(text)


async def _chunks(path: Path, offset: int) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while piece := file.read(CHUNK_BYTES):
            yield piece
