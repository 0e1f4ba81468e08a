"""The guard's connection to the aggregator: outgoing HTTPS only, every request with its proof, everything resumable."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeVar

import aiohttp

from fedsilo.api.conditions import GuardState
from fedsilo.errors import Problem
from fedsilo.files.digests import short_digest
from fedsilo.http.large_body import file_pieces
from fedsilo.http.threads import take_in_thread
from fedsilo.hub.answer_body import answer_pieces
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import MAX_ENVELOPE_BYTES, BlobLink, SigningKey, sign_request
from fedsilo.wire.problems import one_line
from fedsilo_agent.guard.part_file import PartFile
from fedsilo_agent.guard.response import AggregatorUnavailableError, Response, read_bounded
from fedsilo_agent.guard.text import bounded_text

log = logging.getLogger("fedsilo.guard")

T = TypeVar("T")

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 2.0
"""Pauses between tries, doubling from the first to the last, with jitter."""

ANNOUNCEMENT_WAIT_SECONDS = 20.0
"""Longest time that the aggregator may hold what is announced before round 1."""

REMINDER_SECONDS = 60.0
"""Interval at which a reason that keeps coming back is logged again: an aggregator may be down for long."""

MAX_NEW_REASONS = 10
"""Reasons of failed tries that are logged in such an interval: whoever answers can invent a new one each time."""

GATEWAY_CODES = frozenset({"too-many-requests", "unreachable"})
"""Refusals of the gateway between silo and aggregator, which say nothing about the aggregator."""

RETRIED_CODES = GATEWAY_CODES | {
    *("storage-full", "offset-mismatch", "proof-expired", "truncated", "interrupted", "range-not-satisfiable")
}
"""Refusals that are temporary: a disk gets space, an offset is read anew, a clock is set, a blob is whole again."""

WHOLE_CODES = frozenset({"malformed", "too-long", "signature-invalid", "digest-mismatch"})
"""Refusals of an upload that are final only if all of it was sent: bytes that were kept from before may be damaged."""


@dataclass(frozen=True)
class AggregatorAddress:
    """The aggregator to talk to, and the identity to use.

    :param url: base URL of the aggregator.
    :param ca: PEM of the authority of its certificate, the system's authorities when None.
    :param sender: `namespace/name` of the silo.
    """

    url: str
    ca: str | None
    job: str
    sender: str
    key: SigningKey


class AggregatorClient:
    """The verbs of the protocol. Each tries again until it has an answer or a final refusal."""

    def __init__(self, peer: AggregatorAddress) -> None:
        self._peer = peer
        self._https = HttpsClient(peer.url, peer.ca)
        self.answered: float | None = None
        """When the aggregator answered last (Unix time), whatever it was."""
        self.received = 0
        """Bytes of blobs."""

    async def __aenter__(self) -> AggregatorClient:
        await self._https.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._https.__aexit__()

    async def task(self, after: str, wait: float) -> bytes | None:
        """The sealed task for this silo, unless it is still the one given in `after`."""
        path = f"{self._base}/task?after={after}&wait={wait:g}"

        async def fetch_task_once() -> bytes | None:
            async with self._request("GET", path) as response:
                return None if response.status == 204 else await read_bounded(response, MAX_ENVELOPE_BYTES)

        return await self._retry(f"task after {after or 'the start'}", fetch_task_once)

    async def download(self, link: BlobLink, path: Path) -> None:
        """Fetch a blob to a file, going on where an earlier try ended, and check its digest.

        :raises Problem: `digest-mismatch` when the blob, fetched as a whole, is not what the task names.
        """
        with PartFile(path) as part:
            resumed = await asyncio.to_thread(part.size) > 0
            while True:
                await self._retry(
                    f"blob {short_digest(link.digest)}", lambda: self._download_rest(link, part)
                )
                digest = await asyncio.to_thread(part.digest)
                if digest == link.digest:
                    break
                part.clear()
                if not resumed:
                    raise Problem(
                        "digest-mismatch",
                        f"blob {link.name}: received {digest}, the task names {link.digest}",
                    )
                log.warning(
                    "%s: what an earlier process had fetched does not hold; fetching all of it", part.path
                )
                resumed = False
            part.publish()

    async def upload(self, task: str, path: Path, digest: str, *, new: bool = False) -> None:
        """Send a signed update until it is acknowledged as durable.

        :param new: nothing of it was sent before, so the first try does not ask how much of it has arrived.
        :raises Problem: when it is refused for good: it is not awaited any more, or was refused as a whole.
        """
        tries = itertools.count()

        async def upload_once() -> None:
            await self._upload_rest(task, path, digest, 0 if new and next(tries) == 0 else None)

        await self._retry(f"update of {task}", upload_once)

    async def announce_schema(self, content: bytes) -> None:
        """Say what the silo's data are called, and wait until the aggregator has compared that with the others'.

        :param content: a schema in canonical JSON.
        :raises Problem: `schema-mismatch` when they differ, with which the job has failed.
        """
        await self._announce("schema", content)

    async def announce_readiness(self, content: bytes) -> None:
        """Say how the silo's data are, and wait until the aggregator lets it begin.

        :param content: schema and findings in canonical JSON.
        :raises Problem: `not-ready` or `schema-mismatch` when the job has failed of what the silos have said.
        """
        await self._announce("readiness", content)

    async def _announce(self, what: str, content: bytes) -> None:
        path, pause = f"{self._base}/{what}?wait={ANNOUNCEMENT_WAIT_SECONDS:g}", FIRST_RETRY_SECONDS

        async def once() -> bool:
            async with self._request("POST", path, data=content, proven=content) as response:
                return response.status == 204

        asked = time.monotonic()
        while not await self._retry(f"the {what}", once):
            if time.monotonic() - asked >= ANNOUNCEMENT_WAIT_SECONDS / 2:
                pause = FIRST_RETRY_SECONDS
            else:  # an answer that says nothing, and does not come when it was asked for
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LAST_RETRY_SECONDS)
            asked = time.monotonic()

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        """Report why there will be no update for a task."""
        body = json.dumps({"reason": reason, "message": bounded_text(message)}).encode()

        async def report_once() -> None:
            async with self._request("POST", f"{self._base}/failures/{task}", data=body, proven=body):
                return

        await self._retry(f"failure of {task}", report_once)

    async def tell_state(self, state: GuardState | None) -> None:
        """Say what keeps the guard from going on, or that nothing does any more."""
        body = json.dumps({"state": state}).encode()

        async def tell_once() -> None:
            async with self._request("POST", f"{self._base}/heartbeat", data=body, proven=body):
                return

        await self._retry("heartbeat", tell_once)

    @property
    def _base(self) -> str:
        return f"/v1/jobs/{self._peer.job}"

    async def _download_rest(self, link: BlobLink, part: PartFile) -> None:
        have = await asyncio.to_thread(part.size)
        if have >= link.length:
            return  # judged by its digest, a blob of no bytes too
        headers = {"Range": f"bytes={have}-"} if have else {}
        async with self._request("GET", f"{self._base}/blobs/{link.digest}", headers=headers) as response:
            if response.status != 206:
                part.clear()
                have = 0
            size = have

            def take(piece: bytes | memoryview) -> None:
                part.append(piece)
                self.received += len(piece)

            async def pieces() -> AsyncIterator[bytes | memoryview]:
                nonlocal size
                async for piece in body:
                    size += len(piece)
                    if size > link.length:
                        return
                    yield piece

            async with aclosing(answer_pieces(response)) as body:
                await take_in_thread(pieces(), take)
        if size > link.length:
            part.clear()
        if size != link.length:
            raise AggregatorUnavailableError(f"{size} of {link.length} bytes arrived")

    async def _upload_rest(self, task: str, path: Path, digest: str, offset: int | None) -> None:
        """Send what the aggregator has not.

        :param offset: bytes that it has; it is asked when None.
        """
        length = path.stat().st_size
        try:
            if offset is None:
                offset = await self._upload_offset(task, digest, length)
            if offset is not None:
                await self._upload_from(offset, task, path, digest, length)
        except Problem as problem:
            if offset == 0 or problem.code not in WHOLE_CODES:
                raise
            # The aggregator had kept a part of it that does not hold; it asks for all of it the next time.
            raise AggregatorUnavailableError(f"the part that was sent before: {problem}") from problem

    async def _upload_offset(self, task: str, digest: str, length: int) -> int | None:
        """How many bytes the aggregator has; None when it has accepted the update."""
        url = f"{self._base}/updates/{task}"
        async with self._request("HEAD", url, headers={"Upload-Digest": digest}) as response:
            complete = response.headers.get("Upload-Complete") == "?1"
            return None if complete else _offset(response, length)

    async def _upload_from(self, offset: int, task: str, path: Path, digest: str, length: int) -> None:
        headers = {
            "Upload-Offset": str(offset),
            "Upload-Length": str(length),
            "Upload-Digest": digest,
            "Content-Type": "application/vnd.fedsilo.update",
            "Content-Length": str(length - offset),
        }
        url = f"{self._base}/updates/{task}"
        with FileIO(path) as file:
            data = file_pieces(file, offset, length)
            async with self._request("PATCH", url, headers=headers, data=data) as response:
                if response.status == 204:
                    raise AggregatorUnavailableError(
                        f"{response.headers.get('Upload-Offset')} of {length} bytes arrived"
                    )

    def _request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        data: bytes | AsyncIterator[memoryview] | None = None,
        proven: bytes | None = None,
    ) -> Response:
        peer = self._peer
        proof = sign_request(
            peer.key, job=peer.job, sender=peer.sender, method=method, path=path, body=proven, now=time.time()
        )
        # Redirects are not followed: the guard talks to no other server than the one that the silo admitted.
        return Response(
            self._https.request(method, path, {"Authorization": proof, **(headers or {})}, data), self._https
        )

    async def _retry(self, what: str, once: Callable[[], Awaitable[T]]) -> T:
        """Try until there is an answer: the other side may not be up yet, be restarted, or have no name so far."""
        pause, reasons = FIRST_RETRY_SECONDS, _Reasons()
        while True:
            try:
                answer = await once()
                self.answered = time.time()
                return answer
            except Problem as problem:
                if problem.code not in GATEWAY_CODES:
                    self.answered = time.time()
                if problem.code not in RETRIED_CODES:
                    raise
                reason = str(problem)
            except (Unreachable, AggregatorUnavailableError) as error:
                reason = bounded_text(one_line(error))
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                reason = bounded_text(one_line(f"{type(error).__name__}: {error}"))
            if reasons.is_news(reason):
                log.warning("%s: %s; trying again until there is an answer", what, reason)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_RETRY_SECONDS)


class _Reasons:
    """Why tries have failed: a new reason is logged at once; one that stays, or many in a row, now and then."""

    def __init__(self) -> None:
        self._last = ""
        self._new = 0
        self._until = 0.0

    def is_news(self, reason: str) -> bool:
        """Whether to log this reason."""
        now = time.monotonic()
        if now >= self._until:
            self._new, self._last = 0, ""
        if reason == self._last or self._new >= MAX_NEW_REASONS:
            return False
        self._last, self._new, self._until = reason, self._new + 1, now + REMINDER_SECONDS
        return True


def _offset(response: aiohttp.ClientResponse, length: int) -> int:
    text = response.headers.get("Upload-Offset", "")
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) > length:
        raise AggregatorUnavailableError(f"Upload-Offset {text[:32]!r} is no position in {length} bytes")
    return int(text)
