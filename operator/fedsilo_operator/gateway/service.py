"""The gateway's HTTP interface: what reaches it from institutions, and how it refuses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from fedsilo.errors import Problem
from fedsilo.http.refusals import RefusingRunner, problem_response, unreadable_body
from fedsilo.wire.problems import one_line
from fedsilo_operator.gateway.forwarding import CHUNK_BYTES, METHODS, ForwardingService
from fedsilo_operator.gateway.silo_requests import SiloRequests

log = logging.getLogger("fedsilo.gateway")

SHUTDOWN_SECONDS = 1.0
"""Time that requests get to end by themselves when the gateway ends: every one can be sent again."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GatewayService:
    """Routes of the gateway, and the refusals of all of them.

    :param requests: what silos ask the hub itself; None where only jobs' requests are forwarded.
    :ivar refused: refusals by problem code.
    """

    def __init__(self, forwarding: ForwardingService, requests: SiloRequests | None = None) -> None:
        self.refused: Counter[str] = Counter()
        self._forwarding = forwarding
        self._requests = requests

    def runner(self) -> web.AppRunner:
        """The service over connections that refuse what is no request; a silo that hangs up ends its request."""
        return RefusingRunner(
            self.application(),
            self.refuse,
            self._forwarding.connections,
            access_log=None,
            auto_decompress=False,
            read_bufsize=CHUNK_BYTES,
            shutdown_timeout=SHUTDOWN_SECONDS,
            handler_cancellation=True,
        )

    def application(self) -> web.Application:
        """The aiohttp application with the gateway's routes and middlewares."""
        app = web.Application(middlewares=[self._problems])
        for method in METHODS:
            app.router.add_route(method, "/v1/jobs/{job}/{rest:.+}", self._forwarding.forward)
        if self._requests is not None:
            self._requests.add_to(app)
        app.on_cleanup.append(self._close)
        return app

    def refuse(self, what: str, problem: Problem) -> web.Response:
        """Count and log a refusal, and make the answer.

        :param what: method and path of the request.
        """
        self.refused[problem.code] += 1
        log.warning("refused %s: %s", one_line(what), one_line(problem))
        return problem_response(problem)

    async def _close(self, _: web.Application) -> None:
        await self._forwarding.close()

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        what = f"{request.method} {request.raw_path}"
        try:
            _require_plain(request)
            return await handler(request)
        except Problem as problem:
            return self.refuse(what, problem)
        except web.HTTPException as found:
            return self.refuse(what, Problem("malformed", f"{what}: {found.reason}"))
        except (OSError, web.RequestPayloadError) as error:
            if error is not request.content.exception():
                raise
            return self.refuse(what, unreadable_body(error))


def _require_plain(request: web.Request) -> None:
    """The body is what was sent: a few bytes may unpack to very many, and what is unpacked is not what goes on."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise Problem("unsupported", f"Content-Encoding is {encoding[:32]!r}; send the body as it is")
