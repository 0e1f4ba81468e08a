"""The cluster in memory behind the API of Kubernetes, for real processes that speak HTTP to it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml
from aiohttp import web

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import (
    CallRefused,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    FieldConflict,
    NotFound,
    VersionExpired,
)
from fedsilo_operator.objects import KINDS, Kind, Ref
from tests.operator_fakes.cluster import FakeCluster

T = TypeVar("T")

STATUS: dict[type[ClusterError], int] = {
    NotFound: 404,
    Conflict: 409,
    FieldConflict: 409,
    VersionExpired: 410,
    CallRefused: 422,
    ClusterUnavailable: 503,
}

_BY_PATH = {(kind.api, kind.plural): kind for kind in KINDS.values()}

Answer = Callable[[web.Request, Kind, Ref], Awaitable[web.StreamResponse]]


class ServedCluster:
    """Serves a fake cluster on a loopback address, from a thread of its own; a context manager.

    :ivar cluster: to be touched in that thread alone, by way of `ask`.
    :ivar kubeconfig: names it to processes.
    :ivar down: whether it answers nothing but 503.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.cluster = FakeCluster(now=lambda: datetime.now(UTC))
        self.kubeconfig = kubeconfig
        self.down = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api server", daemon=True)
        self._runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        port = self._run(self._start())
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(port)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, question: Callable[[FakeCluster], T]) -> T:
        """Read or change the cluster as people, nodes and other controllers do."""

        async def answer() -> T:
            return question(self.cluster)

        return self._run(answer())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> int:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        verbs: dict[tuple[str, str], Answer] = {
            ("GET", ""): self._list,
            ("POST", ""): self._create,
            ("GET", "/{name}"): self._get,
            ("DELETE", "/{name}"): self._delete,
            ("PATCH", "/{name}"): self._patch,
            ("PATCH", "/{name}/{status:status}"): self._patch,
        }
        for root in ("/{api:api/v1}", "/apis/{api:[^/]+/[^/]+}"):
            for (method, rest), answer in verbs.items():
                for within in ("", "/namespaces/{namespace}"):
                    app.router.add_route(method, f"{root}{within}/{{plural}}{rest}", self._answering(answer))
        return app

    def _answering(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            place = request.match_info
            kind = _BY_PATH[place["api"].removeprefix("api/"), place["plural"]]
            try:
                if self.down:
                    raise ClusterUnavailable("the server is starting")
                return await answer(request, kind, Ref(place.get("namespace", ""), place.get("name", "")))
            except ClusterError as error:
                return _refusal(error)

        return handle

    async def _list(self, request: web.Request, kind: Kind, ref: Ref) -> web.StreamResponse:
        query, namespace = request.query, ref.namespace or None
        labels = query.get("labelSelector", "")
        if "watch" in query:
            return await self._watch(request, kind, namespace, labels)
        fields = query.get("fieldSelector", "")
        found = await self.cluster.list(kind, namespace=namespace, labels=labels, fields=fields)
        return web.json_response(
            {"metadata": {"resourceVersion": found.resource_version}, "items": found.items}
        )

    async def _watch(
        self, request: web.Request, kind: Kind, namespace: str | None, labels: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        version, seconds = request.query["resourceVersion"], float(request.query["timeoutSeconds"])
        with suppress(TimeoutError, ConnectionError):
            async with (
                asyncio.timeout(seconds),
                aclosing(self.cluster.watch(kind, version, namespace=namespace, labels=labels)) as changes,
            ):
                try:
                    async for change in changes:
                        await response.write(_line(change.type, change.object))
                except ClusterError as error:
                    await response.write(_line("ERROR", _status(error)))
        return response

    async def _get(self, _: web.Request, kind: Kind, ref: Ref) -> web.StreamResponse:
        return web.json_response(await self.cluster.get(kind, ref))

    async def _create(self, request: web.Request, _: Kind, __: Ref) -> web.StreamResponse:
        return web.json_response(await self.cluster.create(await request.json()), status=201)

    async def _delete(self, request: web.Request, kind: Kind, ref: Ref) -> web.StreamResponse:
        await self.cluster.get(kind, ref)
        options = await request.json()
        await self.cluster.delete(kind, ref, uid=(options.get("preconditions") or {}).get("uid"))
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _patch(self, request: web.Request, kind: Kind, ref: Ref) -> web.StreamResponse:
        body = await request.json()
        if request.content_type == "application/merge-patch+json":
            if "metadata" in body:
                return web.json_response(await self.cluster.merge(body))
            # a repeated event, whose fields are flat
            return web.json_response(self.cluster.put((await self.cluster.get(kind, ref)) | body))
        manager, status = request.query["fieldManager"], "status" in request.match_info
        return web.json_response(await self.cluster.apply(body, manager=manager, status=status))


def _refusal(error: ClusterError) -> web.Response:
    return web.json_response(_status(error), status=STATUS[type(error)])


def _status(error: ClusterError) -> Object:
    causes = [{"reason": "FieldManagerConflict"}] if isinstance(error, FieldConflict) else []
    code = STATUS[type(error)]
    return {"kind": "Status", "code": code, "message": str(error), "details": {"causes": causes}}


def _line(what: str, content: Object) -> bytes:
    return json.dumps({"type": what, "object": content}).encode() + b"\n"


def _kubeconfig(port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": "sesame"}}],
    }
