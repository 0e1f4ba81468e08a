"""The aggregator's HTTPS interface: tasks, blobs, updates, failures. `docs/wire.md` is its specification."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from fedsilo.durable import is_disk_full
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import Problem
from fedsilo.logs import concerning
from fedsilo.wire import FINISH, VerifyKey, problem_document, verify_request
from fedsilo.wire.problems import STATUS, one_line
from fedsilo_aggregator.uploads import UploadRange, Uploads

log = logging.getLogger("fedsilo.aggregator")

MAX_WAIT_SECONDS = 60.0
"""Longest time for which a request for the next task is held."""

MAX_FAILURE_BYTES = 16 << 10
"""Largest failure report."""

SILO: web.RequestKey[str] = web.RequestKey("silo", str)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AggregatorService:
    """Request handlers over one job's round engine.

    :param keys: sender -> public key.
    :ivar last_seen: silo -> `time.monotonic()` of its last proven request.
    :ivar finished: silos that have fetched the `finish` task.
    :ivar refused: refusals by problem code.
    :ivar served: silo -> bytes of blobs that it fetched.
    """

    def __init__(self, engine: RoundEngine, keys: Mapping[str, VerifyKey]) -> None:
        self.engine = engine
        self.uploads = Uploads(engine, keys, self.announce_change)
        self.last_seen: dict[str, float] = {}
        self.finished: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self._keys = keys
        self._given: dict[str, str] = {}  # silo -> the task that this process gave it last
        self._changed = asyncio.Event()

    def application(self) -> web.Application:
        """Routes and middlewares."""
        app = web.Application(middlewares=[self._problems, self._proofs], client_max_size=MAX_FAILURE_BYTES)
        job = f"/v1/jobs/{self.engine.identity.uid}"
        app.router.add_get("/healthz", self._health)
        app.router.add_get(f"{job}/task", self._task)
        app.router.add_get(f"{job}/blobs/{{digest}}", self._blob)
        app.router.add_head(f"{job}/updates/{{task}}", self._offset)
        app.router.add_patch(f"{job}/updates/{{task}}", self._update)
        app.router.add_post(f"{job}/failures/{{task}}", self._failure)
        return app

    def announce_change(self) -> None:
        """Wake every request that waits for a change, and `run_rounds`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float) -> None:
        """Return at the next change, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Problem as found:
            problem = found
        except web.HTTPException as found:
            problem = Problem("malformed", f"{request.method} {request.raw_path}: {found.reason}")
        except OSError as error:
            if not is_disk_full(error):
                raise
            problem = Problem("storage-full", "the aggregator's disk is full; send it again later")
        self.refused[problem.code] += 1
        sender = request.get(SILO, "-")
        with concerning(silo=_name(request)):
            log.warning(
                "refused %s %s from %s: %s", request.method, request.raw_path, sender, one_line(problem)
            )
        return problem_response(problem)

    @web.middleware
    async def _proofs(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        if not request.path.startswith(f"/v1/jobs/{self.engine.identity.uid}/"):
            raise Problem("wrong-job", f"{request.raw_path} is not of job {self.engine.identity.uid}")
        body = await _small_body(request) if request.method == "POST" else None
        request[SILO] = verify_request(
            request.headers.get("Authorization", ""),
            self._keys,
            job=self.engine.identity.uid,
            method=request.method,
            path=request.raw_path,
            body=body,
            now=time.time(),
        )
        self.last_seen[request[SILO]] = time.monotonic()
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _task(self, request: web.Request) -> web.Response:
        silo, after = request[SILO], request.query.get("after", "")
        until = time.monotonic() + min(_number(request.query.get("wait", "0"), "wait"), MAX_WAIT_SECONDS)
        while True:
            task = self.engine.task(silo)
            if task is not None and (task.id != after or self._given.get(silo) != after):
                # A task of before a restart is given again: its answer may be lost, or did not hold any more.
                self._given[silo] = task.id
                if task.id == FINISH:
                    self.finished.add(silo)
                return web.Response(body=task.sealed, content_type="application/msgpack")
            left = until - time.monotonic()
            if left <= 0:
                return web.Response(status=204)
            await self.wait_for_change(left)

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        path = self.engine.blob(request.match_info["digest"])
        if path is None:
            raise Problem("unknown-blob", f"no open task refers to blob {request.match_info['digest'][:64]}")
        response = web.FileResponse(path, chunk_size=1 << 20)
        await response.prepare(request)
        self.served[request[SILO]] += response.content_length or 0
        return response

    async def _offset(self, request: web.Request) -> web.Response:
        task = request.match_info["task"]
        if self.uploads.is_accepted(task, _digest(request)):
            return web.Response(headers={"Upload-Complete": "?1"})
        offset = await self.uploads.offset(task, request[SILO])
        return web.Response(headers={"Upload-Complete": "?0", "Upload-Offset": str(offset)})

    async def _update(self, request: web.Request) -> web.Response:
        task, part = request.match_info["task"], _upload_range(request)
        known = self.uploads.is_accepted(task, part.digest)
        body = request.content.iter_any()
        if not await self.uploads.receive(task, request[SILO], part, body, _hang_up(request)):
            offset = await self.uploads.offset(task, request[SILO])
            return web.Response(status=204, headers={"Upload-Offset": str(offset)})
        return web.json_response({"task": task, "digest": part.digest}, status=200 if known else 201)

    async def _failure(self, request: web.Request) -> web.Response:
        silo, task = request[SILO], request.match_info["task"]
        reason, message = _failure_report(await request.read())
        if self.engine.fail(silo, task, reason, message):
            with concerning(silo=_name(request)):
                log.warning("silo %s failed task %s: %s: %s", silo, task, reason, message)
            self.announce_change()
        return web.Response(status=204)


def _name(request: web.Request) -> str | None:
    """Name of the silo, once it has proven its identity."""
    reference = request.get(SILO)
    return None if reference is None else reference.rpartition("/")[2]


def problem_response(problem: Problem) -> web.Response:
    """A refusal as RFC 9457 problem details; the code also as a header, since an answer to HEAD has no body."""
    return web.json_response(
        problem_document(problem),
        status=STATUS[problem.code],
        content_type="application/problem+json",
        headers={"Problem": problem.code},
    )


def _hang_up(request: web.Request) -> Callable[[], None]:
    transport = request.transport

    def hang_up() -> None:
        if transport is not None:
            transport.abort()

    return hang_up


async def _small_body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Problem("too-long", f"the body of a report is at most {MAX_FAILURE_BYTES} bytes") from None


def _number(text: str, name: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise Problem("malformed", f"{name}={text[:32]!r} is not a number of seconds")
    return float(text)


def _upload_range(request: web.Request) -> UploadRange:
    return UploadRange(_bytes(request, "Upload-Offset"), _bytes(request, "Upload-Length"), _digest(request))


def _bytes(request: web.Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Problem("malformed", f"header {name}: {text[:32]!r} is not a number of bytes")
    return int(text)


def _digest(request: web.Request) -> str:
    text = request.headers.get("Upload-Digest", "")
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise Problem("malformed", f"header Upload-Digest: {text[:80]!r} is not a hex sha256")
    return text


def _failure_report(body: bytes) -> tuple[str, str]:
    try:
        report = json.loads(body)
        reason, message = report["reason"], report["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Problem("malformed", "a failure report is a JSON object with reason and message") from None
    if not (
        isinstance(reason, str) and re.fullmatch(r"[A-Z][A-Za-z]{0,63}", reason) and isinstance(message, str)
    ):
        raise Problem(
            "malformed", f"failure reason {str(reason)[:64]!r} is not a CamelCase word, or message no text"
        )
    return reason, one_line(message)
