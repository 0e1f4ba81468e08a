"""The requests of silos to the hub itself, beside those about jobs: `docs/wire.md` is their specification."""

from __future__ import annotations

import asyncio
import re
import time

from aiohttp import web

from fedsilo.api.observed import Object
from fedsilo.errors import Problem
from fedsilo.silo.rotation import previous_key
from fedsilo.wire import VerifyKey, verify_request
from fedsilo.wire.problems import one_line
from fedsilo_operator.gateway.bodies import MAX_STATUS_BYTES, json_object, small_body
from fedsilo_operator.gateway.hub import Hub
from fedsilo_operator.gateway.limits import RequestAccount
from fedsilo_operator.objects import Ref, ref_of, silo_of

MAX_WAIT_SECONDS = 60.0
"""Longest time for which a request for SiloAgents is held."""

REVISION = "Revision"
"""Header with the revision that an answer holds."""

_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


class SiloRequests:
    """Handlers of what a silo asks the hub."""

    def __init__(self, hub: Hub, admission: RequestAccount) -> None:
        self._hub = hub
        self._admission = admission
        self._changed: dict[Ref, asyncio.Event] = {}

    def add_to(self, app: web.Application) -> None:
        """Add the routes of these requests to the application."""
        silo = "/v1/silos/{namespace}/{name}"
        app.router.add_post("/v1/enrolments", self._enrol)
        app.router.add_get(f"{silo}/agents", self._agents)
        app.router.add_put(f"{silo}/agents/{{agent}}/status", self._report)
        app.router.add_put(f"{silo}/offer", self._offer)
        app.router.add_post(f"{silo}/key", self._rotate)
        app.router.add_put(f"{silo}/leaving", self._leave)

    def notice(self, before: Object | None, after: Object | None) -> None:
        """A SiloAgent or Silo has changed: wake the silo that waits for that."""
        for obj in (before, after):
            if obj is not None:
                ref = silo_of(obj) if obj["kind"] == "SiloAgent" else ref_of(obj)
                if (event := self._changed.pop(ref, None)) is not None:
                    event.set()

    async def _enrol(self, request: web.Request) -> web.Response:
        body = await small_body(request)
        asked = json_object(body, "silo", "token", "publicKey", "version")
        silo, token, key, version = (_text(asked, name) for name in ("silo", "token", "publicKey", "version"))
        ref = _ref(silo)
        registered = VerifyKey.from_text(key)
        self._verify(request, ref, registered, body)
        # Nobody without its token uses up the silo's requests.
        self._hub.registration.require_invitation(ref, token)
        with self._admission.request(silo):
            await self._hub.registration.enrol(ref, token, registered, one_line(version)[:100])
        return web.json_response({"silo": silo, "fingerprint": registered.fingerprint}, status=201)

    async def _agents(self, request: web.Request) -> web.Response:
        ref = self._accepted_silo(request, None)
        after, wait = _query(request)
        with self._admission.request(str(ref), request.protocol):
            await self._hub.record_contact(ref)
            until = asyncio.get_running_loop().time() + min(wait, MAX_WAIT_SECONDS)
            while True:
                changed = self._changed.setdefault(ref, asyncio.Event())
                # A silo that was revoked meanwhile is told no more, not even at the end of its wait.
                self._hub.registration.require_accepted(ref)
                told = self._hub.agents(ref, after)
                if told is not None:
                    return web.Response(
                        body=told.sealed,
                        content_type="application/octet-stream",
                        headers={REVISION: told.revision},
                    )
                try:
                    async with asyncio.timeout_at(until):
                        await changed.wait()
                except TimeoutError:
                    return web.Response(status=204)

    async def _report(self, request: web.Request) -> web.Response:
        body = await small_body(request, MAX_STATUS_BYTES)
        ref = self._accepted_silo(request, body)
        with self._admission.request(str(ref), request.protocol):
            report = json_object(body, "uid", "status")
            if not isinstance(report["status"], dict):
                raise Problem("malformed", "status is not a JSON object")
            agent = request.match_info["agent"]
            await self._hub.report(ref, agent, _text(report, "uid"), report["status"])
        return web.Response(status=204)

    async def _offer(self, request: web.Request) -> web.Response:
        body = await small_body(request, MAX_STATUS_BYTES)
        ref = self._accepted_silo(request, body)
        with self._admission.request(str(ref), request.protocol):
            await self._hub.offer(ref, json_object(body))
        return web.Response(status=204)

    async def _rotate(self, request: web.Request) -> web.Response:
        body = await small_body(request)
        rotation = json_object(body)
        # A silo whose answer was lost asks again with the key that it had.
        ref = self._authenticated_silo(request, body, previous_key(rotation))
        self._hub.registration.require_accepted(ref)
        with self._admission.request(str(ref), request.protocol):
            await self._hub.registration.rotate(ref, rotation)
        return web.Response(status=204)

    async def _leave(self, request: web.Request) -> web.Response:
        body = await small_body(request)
        # One that is not accepted yet may leave as well, and one that has left may say so once more.
        ref = self._authenticated_silo(request, body)
        with self._admission.request(str(ref), request.protocol):
            await self._hub.registration.leave(ref, json_object(body))
        return web.Response(status=204)

    def _accepted_silo(self, request: web.Request, body: bytes | None) -> Ref:
        """The silo that the path names, if the request is its own and it may ask."""
        ref = self._authenticated_silo(request, body)
        self._hub.registration.require_accepted(ref)
        return ref

    def _authenticated_silo(
        self, request: web.Request, body: bytes | None, earlier_key: str | None = None
    ) -> Ref:
        """The silo that the path names, if the request is its own.

        :param earlier_key: of the silo, which will do for this request.
        """
        ref = _ref(f"{request.match_info['namespace']}/{request.match_info['name']}")
        self._verify(request, ref, self._hub.registration.registered_key(ref, earlier_key), body)
        return ref

    def _verify(self, request: web.Request, silo: Ref, key: VerifyKey, body: bytes | None) -> None:
        hub = self._hub.identity.id
        try:
            verify_request(
                request.headers.get("Authorization", ""),
                {str(silo): key},
                job=hub,
                method=request.method,
                path=request.raw_path,
                body=body,
                now=time.time(),
            )
        except Problem as problem:
            if problem.code != "wrong-job":
                raise
            text = (
                f"this is hub {hub}, and the request is for another; check which hub the invitation is from"
            )
            raise Problem("wrong-job", text) from problem


def _ref(silo: str) -> Ref:
    if not re.fullmatch(f"{_NAME}/{_NAME}", silo):
        raise Problem("malformed", f"silo is {silo[:80]!r}; send namespace/name")
    namespace, _, name = silo.partition("/")
    return Ref(namespace, name)


def _text(found: dict[str, object], name: str) -> str:
    value = found[name]
    if not isinstance(value, str):
        raise Problem("malformed", f"{name} is not a text")
    return value


def _query(request: web.Request) -> tuple[str, float]:
    found = dict(request.query)
    after, wait = found.pop("after", ""), found.pop("wait", "0")
    if found or len(request.query) > 2 or not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", wait):
        raise Problem(
            "malformed", f"query {request.query_string[:80]!r}: send after and wait, each once, in seconds"
        )
    return after, float(wait)
