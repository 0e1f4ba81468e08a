"""The dashboard over HTTP: a page, and one JSON document for each view of it. It can only be read.

A page asks for a document with the tag of the one that it has. The answer waits until there is another, so the page is
live with ordinary requests, which carry a token where one is needed and pass every proxy (RFC 9110, section 13.1.2;
RFC 7240, `wait`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Generic, Protocol

from aiohttp import hdrs, web
from typing_extensions import override

from fedsilo.api.figures import finite_figures
from fedsilo.dashboard.feed import Feed, TakenSnapshot
from fedsilo.dashboard.institution import InstitutionSnapshot, institution
from fedsilo.dashboard.snapshot import JobsSnapshot, PageSnapshot
from fedsilo.dashboard.view import Document, overview, page
from fedsilo.http.listening import listening_socket
from fedsilo.http.log import SERVER_LOG

MAX_WAIT_SECONDS = 30.0
"""Time that a request may wait for another document: less than proxies allow."""

BATCH_SECONDS = 0.5
"""Time for which changes are gathered, because they come in bursts."""

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

SECURITY_HEADERS = {
    # Nothing from elsewhere, nothing inline, no frame round it, no form to send.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Vary": "Authorization",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """Who may see what."""

    async def namespaces(self, request: web.Request, snapshot: PageSnapshot) -> Collection[str] | None:
        """Namespaces of which the user may see what is shown; None for all.

        :raises web.HTTPException: 401 when the user is unknown, 403 when they may see nothing.
        """


class LocalAccess(Access):
    """Access for everybody who reaches this machine under a loopback address or name.

    A page elsewhere may let its own name point to 127.0.0.1 and so read, in a browser here, what is served here. It
    cannot make the browser send another Host than its own name.
    """

    @override
    async def namespaces(self, request: web.Request, snapshot: PageSnapshot) -> Collection[str] | None:
        del snapshot
        name = request.host.rpartition(":")[0] or request.host
        if name not in ("localhost", "127.0.0.1", "[::1]"):
            raise web.HTTPForbidden(text="the dashboard is served under localhost only\n")
        return None


@dataclass(frozen=True)
class ViewCache(Generic[TakenSnapshot]):
    """What a server shows of its snapshots.

    :param page: the file at `/`.
    :param documents: path of a document -> what makes it, of a snapshot and the path's variable parts.
    """

    page: str
    documents: Mapping[str, Callable[..., Document | None]]


JOBS: ViewCache[JobsSnapshot] = ViewCache(
    "index.html", {"/api/jobs": overview, "/api/jobs/{namespace}/{name}": page}
)
INSTITUTION: ViewCache[InstitutionSnapshot] = ViewCache("institution.html", {"/api/silo": institution})


@asynccontextmanager
async def serving(
    feed: Feed[TakenSnapshot],
    access: Access,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    *,
    views: ViewCache[TakenSnapshot],
) -> AsyncIterator[int]:
    """Serve the dashboard until the end of the block; yields the port, which 0 lets the system choose."""
    runner = web.AppRunner(
        application(feed, access, views), access_log=None, logger=SERVER_LOG, shutdown_timeout=1
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening_socket(host, port), ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def application(
    feed: Feed[TakenSnapshot], access: Access, views: ViewCache[TakenSnapshot]
) -> web.Application:
    """Routes of the dashboard; their paths are relative, so that a proxy may put a prefix before them."""
    documents = DocumentCache(feed)
    app = web.Application(middlewares=[_add_security_headers])
    for path, view in views.documents.items():
        app.router.add_get(path, _answer_with(documents, access, view))
    for path, answer in _static(views.page):
        app.router.add_get(path, answer)
    return app


def _answer_with(
    documents: DocumentCache[TakenSnapshot], access: Access, view: Callable[..., Document | None]
) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return await _document(
            request, documents, access, lambda snapshot: view(snapshot, **request.match_info)
        )

    return answer


class DocumentCache(Generic[TakenSnapshot]):
    """Documents of the present version: many who look at the same share one."""

    def __init__(self, feed: Feed[TakenSnapshot]) -> None:
        self.feed = feed
        self._version = -1
        self._snapshot = feed.take()
        self._documents: dict[tuple[str, frozenset[str] | None], tuple[str, bytes]] = {}

    def snapshot(self) -> TakenSnapshot:
        """The snapshot of the present version."""
        if self._version != self.feed.version:
            self._version, self._snapshot, self._documents = self.feed.version, self.feed.take(), {}
        return self._snapshot

    def document(
        self, path: str, allowed: Collection[str] | None, view: Callable[[TakenSnapshot], Document | None]
    ) -> tuple[str, bytes] | None:
        """Tag and content of a document, None where there is none.

        :param allowed: see `Access`.
        """
        snapshot = self.snapshot()
        key = path, None if allowed is None else frozenset(allowed)
        if key not in self._documents:
            found = view(snapshot if allowed is None else snapshot.filter_namespaces(allowed))
            if found is None:
                return None
            content = _encode_document(found)
            self._documents[key] = f'"{hashlib.sha256(content).hexdigest()[:32]}"', content
        return self._documents[key]


def _encode_document(document: Document) -> bytes:
    try:
        return json.dumps(document, sort_keys=True, allow_nan=False).encode()
    except ValueError:
        # A figure that JSON cannot state, in one of many jobs: the others have a document all the same.
        return json.dumps(finite_figures(document), sort_keys=True, allow_nan=False).encode()


async def _document(
    request: web.Request,
    documents: DocumentCache[TakenSnapshot],
    access: Access,
    view: Callable[[TakenSnapshot], Document | None],
) -> web.Response:
    """The document, at once or, where the client has this version and sends `Prefer: wait`, when it changes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _patience(request)
    known = request.headers.get(hdrs.IF_NONE_MATCH)
    while True:
        allowed = await access.namespaces(request, documents.snapshot())
        version, document = documents.feed.version, documents.document(request.path, allowed, view)
        if document is None:
            raise web.HTTPNotFound(text="there is no such job\n")
        tag, content = document
        headers = {hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-store"}
        if tag != known:
            response = web.Response(body=content, content_type="application/json", headers=headers)
            response.enable_compression()
            return response
        if not await documents.feed.newer(version, until - loop.time()):
            return web.Response(status=304, headers=headers)
        await asyncio.sleep(BATCH_SECONDS)


def _patience(request: web.Request) -> float:
    """Seconds that the client is willing to wait (RFC 7240, section 4.3)."""
    name, _, value = request.headers.get("Prefer", "").partition("=")
    return (
        min(float(value), MAX_WAIT_SECONDS) if name.strip() == "wait" and value.strip().isdecimal() else 0.0
    )


def _static(page: str) -> list[tuple[str, Handler]]:
    """The files of all pages, read once; this page is the one at `/`."""
    found = []
    for file in sorted(files("fedsilo.dashboard").joinpath("static").iterdir(), key=lambda file: file.name):
        kind = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == page else f"/static/{file.name}"
            found.append((path, _file(file.read_bytes(), kind)))
    return found


def _file(content: bytes, kind: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return answer


@web.middleware
async def _add_security_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every answer, a refusal too, with the headers that keep a page to itself."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        response = refusal
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    if isinstance(response, web.HTTPException):
        raise response
    return response
