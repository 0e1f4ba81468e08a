"""The eight verbs over a Kubernetes API server."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime

from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.connection import APPLY, MERGE, Connection, Query, connect
from fedsilo_operator.cluster.events import EventCache, event_object
from fedsilo_operator.cluster.interface import (
    Change,
    Cluster,
    ClusterUnavailable,
    Event,
    NotFound,
    ObjectList,
    VersionExpired,
)
from fedsilo_operator.cluster.lean import lean_copy
from fedsilo_operator.objects import EVENT, MANAGER, Kind, Ref, kind_of, ref_of

PAGE_OBJECTS = 100
"""Objects per answer of a listing. All kinds are listed at the same time, and whole objects are large."""

WATCH_SECONDS = (300, 600)
"""How long the server keeps a watch; drawn at random each time, so that many watches do not end together."""


class ApiServer(Cluster):
    """A Kubernetes API server over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.requests = connection.requests
        self._repetitions = EventCache()
        self._reporter = socket.gethostname()

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> ObjectList:
        query = _selectors(labels, fields)
        try:
            return await self._pages(kind, _path(kind, namespace), [*query, ("limit", str(PAGE_OBJECTS))])
        except VersionExpired:  # the snapshot that the pages belong to was compacted between two of them
            return await self._pages(kind, _path(kind, namespace), query)
        except NotFound as error:
            raise NotFound(
                f"the API server knows no {kind.plural} in {kind.api}: are the custom resource definitions applied?"
            ) from error

    async def _pages(self, kind: Kind, path: str, query: Query) -> ObjectList:
        items: list[Object] = []
        more = ""
        while True:
            answer = await self._connection.call(
                "GET", path, [*query, *([("continue", more)] if more else [])]
            )
            items += [lean_copy(_typed_item(kind, item)) for item in answer["items"]]
            more = answer["metadata"].get("continue", "")
            if not more:
                return ObjectList(tuple(items), answer["metadata"]["resourceVersion"])

    @override
    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str | None = None, labels: str = ""
    ) -> AsyncGenerator[Change, None]:
        seconds = random.randint(*WATCH_SECONDS)
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
            *_selectors(labels),
        ]
        async with aclosing(self._connection.lines(_path(kind, namespace), query, seconds)) as lines:
            async for line in lines:
                content = line["object"]
                if line["type"] == "ERROR":
                    failed = VersionExpired if content.get("code") == 410 else ClusterUnavailable
                    raise failed(content.get("message", "the watch failed"))
                yield Change(line["type"], _typed_item(kind, content))

    @override
    async def get(self, kind: Kind, ref: Ref) -> Object:
        return await self._object("GET", _path(kind, ref.namespace, ref.name))

    @override
    async def create(self, obj: Object) -> Object:
        path = _path(kind_of(obj), ref_of(obj).namespace)
        return await self._object("POST", path, [("fieldManager", MANAGER)], obj)

    @override
    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        ref = ref_of(obj)
        path = _path(kind_of(obj), ref.namespace, ref.name) + ("/status" if status else "")
        # Whoever else has written into a status has written what is not theirs to say.
        force = [("force", "true")] if status else []
        return await self._object("PATCH", path, [("fieldManager", manager), *force], obj, APPLY)

    @override
    async def merge(self, change: Object) -> Object:
        ref = ref_of(change)
        path = _path(kind_of(change), ref.namespace, ref.name)
        return await self._object("PATCH", path, [("fieldManager", MANAGER)], change, MERGE)

    @override
    async def delete(self, kind: Kind, ref: Ref, *, uid: str | None = None) -> None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        with suppress(NotFound):
            await self._connection.call("DELETE", _path(kind, ref.namespace, ref.name), body=options)

    @override
    async def event(self, event: Event) -> None:
        now = datetime.now(UTC)
        earlier = self._repetitions.earlier_event(event)
        if earlier is not None:
            ref, count = earlier
            with suppress(NotFound):  # events expire after an hour
                body = {"count": count + 1, "lastTimestamp": timestamp(now)}
                await self._object("PATCH", _path(EVENT, ref.namespace, ref.name), (), body, MERGE)
                self._repetitions.remember(event, ref, count + 1)
                return
        made = await self.create(event_object(event, now, self._reporter))
        self._repetitions.remember(event, ref_of(made), 1)

    async def _object(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        answer: Object = await self._connection.call(method, path, query, body, content)
        return answer


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """The API server that `KUBECONFIG` or the pod's service account names.

    :raises ManifestInvalid: when neither is there.
    """
    connection = await connect()
    try:
        yield ApiServer(connection)
    finally:
        await connection.close()


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    """URL path of an object or a kind; without a namespace that of all namespaces, or of a cluster-scoped object."""
    root = f"/api/{kind.api}" if kind.api == "v1" else f"/apis/{kind.api}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{kind.plural}" + (f"/{name}" if name else "")


def _selectors(labels: str, fields: str = "") -> list[tuple[str, str]]:
    found = [("labelSelector", labels), ("fieldSelector", fields)]
    return [(name, value) for name, value in found if value]


def _typed_item(kind: Kind, item: Object) -> Object:
    """Items of a list do not carry their kind."""
    return {"apiVersion": kind.api, "kind": kind.name, **item}
