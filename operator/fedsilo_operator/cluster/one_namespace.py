"""A cluster of which only one namespace is seen: whoever has rights in its own namespace only asks for nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import Change, Cluster, Event, ObjectList
from fedsilo_operator.objects import Kind, Ref


class NamespaceCluster(Cluster):
    """A `Cluster` whose lists and watches without a namespace are of this one."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> ObjectList:
        return await self._cluster.list(
            kind, namespace=namespace or self._namespace, labels=labels, fields=fields
        )

    @override
    def watch(
        self, kind: Kind, resource_version: str, *, namespace: str | None = None, labels: str = ""
    ) -> AsyncGenerator[Change, None]:
        return self._cluster.watch(
            kind, resource_version, namespace=namespace or self._namespace, labels=labels
        )

    @override
    async def get(self, kind: Kind, ref: Ref) -> Object:
        return await self._cluster.get(kind, ref)

    @override
    async def create(self, obj: Object) -> Object:
        return await self._cluster.create(obj)

    @override
    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        return await self._cluster.apply(obj, manager=manager, status=status)

    @override
    async def merge(self, change: Object) -> Object:
        return await self._cluster.merge(change)

    @override
    async def delete(self, kind: Kind, ref: Ref, *, uid: str | None = None) -> None:
        await self._cluster.delete(kind, ref, uid=uid)

    @override
    async def event(self, event: Event) -> None:
        await self._cluster.event(event)
