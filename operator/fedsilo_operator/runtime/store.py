"""What is known of the cluster: objects by kind, with indexes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from typing_extensions import override

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.cluster.interface import Change, Cluster, Event, ObjectList
from fedsilo_operator.cluster.lean import lean_copy
from fedsilo_operator.objects import JOB_NAME, JOB_UID, Kind, Ref, kind_of, labels_of, ref_of

T = TypeVar("T")

INDEXED_LABELS = (JOB_UID, JOB_NAME)
"""Labels with few objects per value."""

ChangeListener = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change."""


class Indexer:
    """The objects that one reflector brings, of a kind and under a label selector, indexed by namespace and label."""

    def __init__(self) -> None:
        self.objects: dict[Ref, Object] = {}
        self.version = 0
        """The API server's version of all objects of the kind that it is up to; 0 before the first list."""
        self._by_namespace: defaultdict[str, set[Ref]] = defaultdict(set)
        self._by_label: defaultdict[tuple[str, str], set[Ref]] = defaultdict(set)
        self.listeners: list[ChangeListener] = []
        """Called for every difference, whether a watch or a write brought it."""

    def update(self, obj: Object) -> None:
        """Set an object, and notify the listeners if that changed anything that is read."""
        before = self.put(obj)
        after = self.objects[ref_of(obj)]
        if before is None or (before is not after and _content(before) != _content(after)):
            self.notify(before, after)

    def notify(self, before: Object | None, after: Object | None) -> None:
        """Call the listeners with an object before and after; None where it did not exist, or no longer does."""
        for listener in self.listeners:
            listener(before, after)

    def put(self, obj: Object) -> Object | None:
        """Set an object and return the one before; a version that is not newer than the one there changes nothing."""
        ref = ref_of(obj)
        before = self.objects.get(ref)
        if before is not None:
            if uid_of(before) == uid_of(obj) and _version(before) >= _version(obj):
                return before
            self.remove(ref)
        self.objects[ref] = lean_copy(obj)
        self._by_namespace[ref.namespace].add(ref)
        for label in _indexed_labels(labels_of(obj)):
            self._by_label[label].add(ref)
        return before

    def remove(self, ref: Ref) -> Object | None:
        """Remove an object and return it."""
        obj = self.objects.pop(ref, None)
        if obj is not None:
            _discard(self._by_namespace, ref.namespace, ref)
            for label in _indexed_labels(labels_of(obj)):
                _discard(self._by_label, label, ref)
        return obj

    def candidates(self, namespace: str | None, labels: Mapping[str, str]) -> Iterable[Ref]:
        """References that include all that match, from the most selective index."""
        for label in _indexed_labels(labels):
            return self._by_label.get(label, ())
        if namespace is not None:
            return self._by_namespace.get(namespace, ())
        return self.objects


class Store:
    """Caches of all kinds. The objects in it are shared and must not be changed."""

    def __init__(self) -> None:
        self._indexers: dict[Kind, dict[str, Indexer]] = {}

    def indexer(self, kind: Kind, labels: str) -> Indexer:
        """The indexer of the reflector with this selector."""
        return self._indexers.setdefault(kind, {}).setdefault(labels, Indexer())

    def get(self, kind: Kind, ref: Ref) -> Object | None:
        """One object, as far as a reflector has seen it."""
        found = (indexer.objects.get(ref) for indexer in self._indexers.get(kind, {}).values())
        return next((obj for obj in found if obj is not None), None)

    def select(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Objects in a namespace, or all, that carry all these labels; by namespace and name."""
        wanted = (labels or {}).items()
        found = {
            ref: indexer.objects[ref]
            for indexer in self._indexers.get(kind, {}).values()
            for ref in indexer.candidates(namespace, labels or {})
            if namespace in (None, ref.namespace) and wanted <= labels_of(indexer.objects[ref]).items()
        }
        return [obj for _, obj in sorted(found.items())]

    def learn(self, obj: Object) -> None:
        """An answer to a write: what the watch will bring soon.

        An object that is not there is put there only where the watch has yet to bring it, and so its end as well: else
        one that was deleted meanwhile would come back for good.
        """
        for labels, indexer in self._indexers.get(kind_of(obj), {}).items():
            known = indexer.objects.get(ref_of(obj))
            if known is None:
                expected = not labels and 0 < indexer.version < _version(obj)
            else:
                expected = uid_of(known) == uid_of(obj)
            if expected:
                # When the watch brings it, nothing has changed: listeners must hear of it now.
                indexer.update(obj)


MAX_REQUESTS = 32
"""Requests that controllers have under way at once. More make a busy API server no faster, and what does not go this
way, such as the renewal of the lease, would wait among them."""


class WriteThroughCluster(Cluster):
    """A cluster whose applies are seen in the store at once.

    A reconcile that is woken before the watch has brought what the last one wrote would decide on an older state:
    record an event twice, or take back an end that was reached.

    :param requests: most requests under way at once; None where others limit them.
    """

    def __init__(self, cluster: Cluster, store: Store, requests: int | None = None) -> None:
        self._cluster = cluster
        self._store = store
        self._turn: AbstractAsyncContextManager[object] = (
            nullcontext() if requests is None else asyncio.Semaphore(requests)
        )

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> ObjectList:
        async with self._turn:
            return await self._cluster.list(kind, namespace=namespace, labels=labels, fields=fields)

    @override
    def watch(
        self, kind: Kind, resource_version: str, *, namespace: str | None = None, labels: str = ""
    ) -> AsyncGenerator[Change, None]:
        return self._cluster.watch(kind, resource_version, namespace=namespace, labels=labels)

    @override
    async def get(self, kind: Kind, ref: Ref) -> Object:
        async with self._turn:
            return await self._cluster.get(kind, ref)

    @override
    async def create(self, obj: Object) -> Object:
        async with self._turn:
            return await self._cluster.create(obj)

    @override
    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        async with self._turn:
            answer = await self._cluster.apply(obj, manager=manager, status=status)
        self._store.learn(answer)
        return answer

    @override
    async def merge(self, change: Object) -> Object:
        async with self._turn:
            answer = await self._cluster.merge(change)
        self._store.learn(answer)
        return answer

    @override
    async def delete(self, kind: Kind, ref: Ref, *, uid: str | None = None) -> None:
        async with self._turn:
            await self._cluster.delete(kind, ref, uid=uid)

    @override
    async def event(self, event: Event) -> None:
        async with self._turn:
            await self._cluster.event(event)


def _version(obj: Object) -> int:
    """Versions of one kind can be compared as numbers, as Kubernetes 1.35 guarantees (KEP-5504)."""
    return int(obj["metadata"].get("resourceVersion", 0))


def _content(obj: Object) -> Object:
    """An object apart from its version."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return obj | {"metadata": metadata}


def _indexed_labels(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """The labels by which objects are looked up."""
    return [(name, labels[name]) for name in INDEXED_LABELS if name in labels]


def _discard(index: dict[T, set[Ref]], key: T, ref: Ref) -> None:
    if key in index:
        index[key].discard(ref)
        if not index[key]:
            del index[key]
