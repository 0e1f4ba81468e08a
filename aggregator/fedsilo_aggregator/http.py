"""The aggregator's HTTPS interface: tasks, blobs, updates, failures. `docs/wire.md` is its specification."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from io import FileIO

from aiohttp import web

from fedsilo.api.conditions import GuardState
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import Problem
from fedsilo.http.listener import ConnectionStore
from fedsilo.http.refusals import problem_response, unreadable_body
from fedsilo.http.threads import shielded_call
from fedsilo.logs import concerning
from fedsilo.wire import FINISH, VerifyKey, verify_request
from fedsilo.wire.problems import one_line
from fedsilo_aggregator.bodies import FileBody, request_pieces
from fedsilo_aggregator.request_fields import (
    MAX_FAILURE_BYTES,
    READINESS_PATH,
    SCHEMA_PATH,
    announced_readiness,
    announced_schema,
    asked_part,
    failure_report,
    guard_state,
    query,
    require_each_once,
    require_plain,
    require_unconditional,
    seconds,
    small_body,
    upload_digest,
    upload_range,
)
from fedsilo_aggregator.storage import storage_problem
from fedsilo_aggregator.uploads import UploadStore

log = logging.getLogger("fedsilo.aggregator")

MAX_WAIT_SECONDS = 60.0
"""Longest time for which a request for the next task is held."""

REPEAT_SECONDS = 5.0
"""Shortest wait in vain that ends with a task of before a restart."""

ABANDONED_SECONDS = 1.0
"""Longest time for which a request is held whose connection has ended: it keeps some 70 KB."""

HEARD_SECONDS = 60.0
"""Longest silence of a silo that counts as being there."""

NO_BODY = {"Content-Length": "0"}
"""An answer to HEAD needs it: a connection is not used again after an answer that does not say how long it is."""

SILO: web.RequestKey[str] = web.RequestKey("silo", str)
BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
HEADERS: web.RequestKey[dict[str, str]] = web.RequestKey("headers", dict[str, str])
"""Headers of a refusal besides `Problem`."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AggregatorService:
    """Request handlers over one job's round engine.

    :param keys: sender -> public key.
    :ivar connections: those of this service, if a `Listener` accepts them.
    :ivar last_seen: silo -> `time.monotonic()` of its last proven request.
    :ivar finished: silos that have said that they have the `finish` task.
    :ivar refused: refusals by problem code.
    :ivar served: silo -> bytes of blobs that it fetched.
    """

    def __init__(self, engine: RoundEngine, keys: Mapping[str, VerifyKey]) -> None:
        self.engine = engine
        self.uploads = UploadStore(engine, keys, self._note_progress)
        self.connections = ConnectionStore()
        self.last_seen: dict[str, float] = {}
        self.finished: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self._keys = keys
        self._announced: dict[str, float] = {}  # silo -> when it announced its data first
        self._given: dict[str, str] = {}  # silo -> the task that this process gave it last
        self._repeated: dict[str, str] = {}  # silo -> one that it has from before, until it sends its answer
        self._states: dict[
            str, tuple[GuardState, float]
        ] = {}  # silo -> what it said last of its guard, and when
        self._changed = asyncio.Event()  # of what requests wait for
        self._progress = asyncio.Event()  # of what `run_rounds` waits for

    def application(self) -> web.Application:
        """The aiohttp application with the aggregator's routes and middlewares."""
        app = web.Application(middlewares=[self._problems, self._proofs], client_max_size=MAX_FAILURE_BYTES)
        job = f"/v1/jobs/{self.engine.identity.uid}"
        app.router.add_get("/healthz", self._health)
        app.router.add_get(f"{job}/task", self._task)
        app.router.add_get(f"{job}/blobs/{{digest}}", self._blob)
        app.router.add_head(f"{job}/updates/{{task}}", self._offset)
        app.router.add_patch(f"{job}/updates/{{task}}", self._update)
        app.router.add_post(f"{job}/failures/{{task}}", self._failure)
        app.router.add_post(f"{job}/heartbeat", self._heartbeat)
        app.router.add_post(f"{job}{SCHEMA_PATH}", self._schema)
        app.router.add_post(f"{job}{READINESS_PATH}", self._readiness)
        return app

    def announce_change(self) -> None:
        """Wake every request that waits for a change, and `run_rounds`."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._note_progress()

    def ask_again(self) -> None:
        """Give silos the tasks that they have, if they are asked for these once more."""
        self._given.clear()

    async def wait_for_change(self, seconds: float) -> None:
        """Return when there is something for `run_rounds` to look at, or after so many seconds."""
        await _wait(self._progress, seconds)
        self._progress.clear()

    def _note_progress(self) -> None:
        """Wake nobody but `run_rounds`: an update brings no other silo a task before the round is over."""
        self._progress.set()

    def refuse(self, what: str, problem: Problem, sender: str = "-") -> web.Response:
        """Count and log a refusal, and make the answer.

        :param what: method and path of the request.
        """
        self.refused[problem.code] += 1
        log.warning("refused %s from %s: %s", what, sender, one_line(problem))
        return problem_response(problem)

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # An error that a local name keeps would keep the body so far, too, until the garbage collector comes by.
        try:
            return await handler(request)
        except Problem as problem:
            return self._refusal(request, problem)
        except web.HTTPException as found:
            text = f"{request.method} {request.raw_path}: {found.reason}"
            return self._refusal(request, Problem("malformed", text))
        except (OSError, web.RequestPayloadError) as error:
            if error is request.content.exception():
                return self._refusal(request, unreadable_body(error))
            if isinstance(error, OSError) and (failed := storage_problem(error, "nothing was kept")):
                return self._refusal(request, failed)
            raise

    def _refusal(self, request: web.Request, problem: Problem) -> web.Response:
        with concerning(silo=_name(request)):
            response = self.refuse(f"{request.method} {request.raw_path}", problem, request.get(SILO, "-"))
        response.headers.update(request.get(HEADERS, {}))
        return response

    @web.middleware
    async def _proofs(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        if not request.path.startswith(f"/v1/jobs/{self.engine.identity.uid}/"):
            raise Problem("wrong-job", f"{request.raw_path} is not of job {self.engine.identity.uid}")
        require_each_once(request)
        body = await small_body(request) if request.method == "POST" else None
        request[BODY] = body or b""
        require_plain(request)
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
        self.connections.prove(request.protocol, request[SILO])
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _task(self, request: web.Request) -> web.Response:
        silo, asked = request[SILO], query(request, "after", "wait")
        after = asked.get("after", "")
        wait = min(seconds(asked.get("wait", "0"), "wait"), MAX_WAIT_SECONDS)
        until = time.monotonic() + wait
        while True:
            task = self.engine.task(silo)
            if task is not None and task.id == FINISH == after:
                # That it was sent says little: whoever forwards it may die with it.
                self.finished.add(silo)
                self._note_progress()
            left = until - time.monotonic()
            if task is not None and self._is_given(
                silo, task.id, after, left <= 0 and wait >= REPEAT_SECONDS
            ):
                return web.Response(body=task.sealed, content_type="application/msgpack")
            if left <= 0 or request.transport is None:
                return web.Response(status=204)
            await _wait(self._changed, min(left, ABANDONED_SECONDS))

    def _is_given(self, silo: str, task: str, after: str, in_vain: bool) -> bool:
        """Whether to give a silo its task.

        One that it has from before a restart is given again: its answer may be lost, or did not hold any more. That
        this arrived is certain only when the silo sends; until then, it is given in place of no task, never in a hurry.

        :param after: the task that the silo says it has.
        :param in_vain: whether the request has waited, and would be answered with no task.
        """
        if task != after:
            self._repeated.pop(silo, None)
        elif self._given.get(silo) != after:
            self._repeated[silo] = after
        elif not (in_vain and self._repeated.get(silo) == after):
            return False
        self._given[silo] = task
        return True

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        digest, silo = request.match_info["digest"], request[SILO]
        query(request)
        require_unconditional(request)
        path = self.engine.blob(digest)
        try:
            file = None if path is None else FileIO(path)
        except FileNotFoundError:
            file = None
        if file is None:
            raise Problem("unknown-blob", f"no open task refers to blob {digest[:71]}")
        size = os.fstat(file.fileno()).st_size
        try:
            part = asked_part(request, size)
        except ValueError as error:
            file.close()
            request[HEADERS] = {"Content-Range": f"bytes */{size}"}
            text = f"Range is {request.headers['Range'][:80]!r}; blob {digest} has {size} bytes"
            raise Problem("range-not-satisfiable", text) from error

        def count(sent: int) -> None:
            self.served[silo] += sent

        return FileBody(file, part, count)

    async def _offset(self, request: web.Request) -> web.Response:
        task = self._own_task(request)
        if self.uploads.is_accepted(task, upload_digest(request)):
            return web.Response(headers=NO_BODY | {"Upload-Complete": "?1"})
        offset = await self.uploads.offset(task, request[SILO])
        return web.Response(headers=NO_BODY | {"Upload-Complete": "?0", "Upload-Offset": str(offset)})

    async def _update(self, request: web.Request) -> web.Response:
        task, part = self._own_task(request), upload_range(request)
        if self._repeated.get(request[SILO]) == task:
            del self._repeated[request[SILO]]
        known = self.uploads.is_accepted(task, part.digest)
        body = request_pieces(request)
        if not await self.uploads.receive(task, request[SILO], part, body, _hang_up(request)):
            offset = await self.uploads.offset(task, request[SILO])
            return web.Response(status=204, headers={"Upload-Offset": str(offset)})
        return web.json_response({"task": task, "digest": part.digest}, status=200 if known else 201)

    async def _failure(self, request: web.Request) -> web.Response:
        silo, task = request[SILO], self._own_task(request)
        reason, message = failure_report(await request.read())
        if await shielded_call(asyncio.to_thread(self.engine.fail, silo, task, reason, message)):
            with concerning(silo=_name(request)):
                log.warning("silo %s failed task %s: %s: %s", silo, task, reason, message)
            self.announce_change()
        return web.Response(status=204)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        """Take what keeps a silo's guard from going on, or that nothing does any more."""
        query(request)
        silo, state = request[SILO], guard_state(request[BODY])
        self._states.pop(silo, None)
        if state is not None:
            self._states[silo] = state, time.monotonic()
        return web.Response(status=204)

    def hindrances(self) -> dict[str, str]:
        """By silo what keeps its guard from going on, as long as it says so."""
        now = time.monotonic()
        return {silo: state for silo, (state, told) in self._states.items() if now - told < HEARD_SECONDS}

    async def _schema(self, request: web.Request) -> web.Response:
        """Take a silo's schema, and answer when it is known whether it agrees with the others'."""
        wait = _asked_wait(request)
        self.engine.announce(request[SILO], announced_schema(request[BODY]))
        return await self._until_known(request, wait, self.engine.schemata_agree)

    async def _readiness(self, request: web.Request) -> web.Response:
        """Take what a silo says of its data, and answer when it is known whether the job may begin with all of it."""
        wait = _asked_wait(request)
        schema, findings = announced_readiness(request[BODY], self.engine.data)
        if self.engine.data.check is None:
            raise Problem("malformed", "readiness: this job asks for no check; send the schema alone")
        self.engine.report_readiness(request[SILO], schema, findings)
        return await self._until_known(request, wait, self.engine.is_ready)

    async def _until_known(
        self, request: web.Request, wait: float, may_begin: Callable[[Collection[str], float], bool]
    ) -> web.Response:
        """Answer when it is known whether the silo may begin, or its time is over."""
        silo = request[SILO]
        self.announce_change()
        since = self._announced.setdefault(silo, time.monotonic())
        until = time.monotonic() + wait
        while True:
            now = time.monotonic()
            heard = {other for other, seen in self.last_seen.items() if now - seen < HEARD_SECONDS}
            try:
                if may_begin(heard, now - since):
                    return web.Response(status=204)
            except Problem:
                self.announce_change()
                raise
            if now >= until or request.transport is None:
                return web.Response(status=202)
            await _wait(self._changed, min(until - now, ABANDONED_SECONDS))

    def _own_task(self, request: web.Request) -> str:
        """The task that the path names. Of another silo's, nothing is said but that it is one.

        :raises Problem: `wrong-sender`.
        """
        query(request)
        task = request.match_info["task"]
        self.engine.require_sender(task, request[SILO])
        return task


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Return when it is set, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _asked_wait(request: web.Request) -> float:
    """Seconds for which an announcement may be held."""
    return min(seconds(query(request, "wait").get("wait", "0"), "wait"), MAX_WAIT_SECONDS)


def _name(request: web.Request) -> str | None:
    """Name of the silo, once it has proven its identity."""
    reference = request.get(SILO)
    return None if reference is None else reference.rpartition("/")[2]


def _hang_up(request: web.Request) -> Callable[[], None]:
    transport = request.transport

    def hang_up() -> None:
        if transport is not None:
            transport.abort()

    return hang_up
