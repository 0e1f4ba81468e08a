"""Refusals over HTTP are problem documents, also where a connection gets what is no request at all.

aiohttp answers what it cannot parse by itself, before any handler or middleware, with a line of text and a traceback in
the log. A stranger needs no key for that, so it is counted, logged in one line and answered with a problem document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.http.listener import ConnectionStore
from fedsilo.wire.problems import STATUS, problem_document

Refuse = Callable[[str, Problem], web.Response]
"""Counts and logs the refusal of a request, described for the log, and makes the answer."""

MAX_DETAIL = 200
"""Characters quoted of what cannot be parsed."""


def problem_response(problem: Problem) -> web.Response:
    """A refusal as RFC 9457 problem details; the code also as a header, since an answer to HEAD has no body."""
    return web.json_response(
        problem_document(problem),
        status=STATUS[problem.code],
        content_type="application/problem+json",
        headers={"Problem": problem.code},
    )


def unreadable_body(error: Exception) -> Problem:
    """A body that did not come whole, for which its sender may not be to blame, or not in the form of its headers."""
    if isinstance(error, web.RequestPayloadError):
        return Problem("malformed", f"the body cannot be read: {error}")
    return Problem("interrupted", "the connection ended before the body was whole")


class RefusingRunner(web.AppRunner):
    """Runs an application over connections that refuse.

    :param refuse: called for what is no request.
    :param connections: is told of the end of each.
    """

    def __init__(
        self, app: web.Application, refuse: Refuse, connections: ConnectionStore, **options: Any
    ) -> None:
        super().__init__(app, **options)
        self._refuse = refuse
        self._accepted = connections

    @override
    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _RefusingServer(self._refuse, self._accepted, server, self._kwargs)


class _RefusingServer(web.Server):
    def __init__(
        self, refuse: Refuse, connections: ConnectionStore, server: web.Server, options: dict[str, Any]
    ) -> None:
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
        )
        self._refuse = refuse
        self._accepted = connections
        self._options = {name: value for name, value in options.items() if name != "handler_cancellation"}

    @override
    def __call__(self) -> web.RequestHandler:
        return _RefusingConnection(self._refuse, self._accepted, self, loop=self._loop, **self._options)


class _RefusingConnection(web.RequestHandler):
    def __init__(self, refuse: Refuse, connections: ConnectionStore, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._refuse = refuse
        self._accepted = connections
        self._is_refused = False

    @override
    def data_received(self, data: bytes) -> None:
        """Parse the bytes that came; what follows something that cannot be parsed is not looked at.

        Each error would hold the bytes that it was found in, a quarter of a megabyte, until the refusal has its turn.
        aiohttp tells of an error in public only then (`handle_error`), so its queue of messages is looked at.
        """
        if self._is_refused:
            return
        super().data_received(data)
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            self._is_refused = True

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Take note of the end."""
        self._accepted.remove(self)
        super().connection_lost(exc)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed; any other error is a defect, and aiohttp's to report."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        code = "too-long" if isinstance(exc, LineTooLong) else "malformed"
        response = self._refuse("what is no request", Problem(code, exc.message[:MAX_DETAIL]))
        response.force_close()
        return response

    @override
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer to a request.

        A refusal that no middleware has seen, such as of an expectation, gets its problem document here.
        """
        if isinstance(resp, web.HTTPException):
            what = f"{request.method} {request.raw_path}"
            resp = self._refuse(what, Problem("malformed", f"{what}: {resp.reason}"))
        return await super().finish_response(request, resp, start_time)

    @override
    def log_exception(self, *arguments: Any, **options: Any) -> None:
        """Log defects, of which a peer that goes away, or malformed bytes after a refused request, is none."""
        if not isinstance(options.get("exc_info"), ConnectionError | web.RequestPayloadError):
            super().log_exception(*arguments, **options)
