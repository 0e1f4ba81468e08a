"""A Kubernetes API server in memory, with the semantics that controllers rely on, and with faults.

The contract tests of `tests/operator_contract.py` run over it and over a real one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.events import EventCache, event_object
from fedsilo_operator.cluster.interface import (
    Change,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    Event,
    FieldConflict,
    NotFound,
    ObjectList,
    VersionExpired,
)
from fedsilo_operator.objects import (
    EVENT,
    MANAGER,
    SERVICE,
    Kind,
    Ref,
    is_deleted,
    kind_of,
    ref_of,
)
from tests.operator_fakes.ownership import ApplyConflict, Writer, apply, update
from tests.operator_fakes.records import (
    WITHOUT_GENERATION,
    Entry,
    Record,
    bookmark,
    change_of,
    deep_copy,
    default_fields,
    intent,
    merge_patch,
    refuse_change,
    replace_parts,
    selected,
    shown_object,
)
from tests.operator_fakes.selectors import fields_match

Faults = Callable[[str, Kind], ClusterError | None]


@dataclass(eq=False)
class _Watcher:
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    bookmark: bool = False


@dataclass
class FakeCluster:
    """A cluster in memory that implements `fedsilo_operator.cluster.interface.Cluster`.

    :param faults: asked before each verb, before each change of a watch ("watch"), and after each write: an
        `ClusterUnavailable` then is an answer that got lost although the write was done.
    :param refuses: asked before each create and apply of an object, its status apart: a quota, an admission policy.
    :param now: the server's clock.
    :param delay: seconds that a request takes on its way, and an answer on its way back.
    """

    faults: Faults = lambda _verb, _kind: None
    refuses: Callable[[Object], ClusterError | None] = lambda _obj: None
    now: Callable[[], datetime] = lambda: datetime(2026, 1, 1, tzinfo=UTC)
    delay: Callable[[], float] = lambda: 0.0
    writes: list[tuple[str, Kind, Ref]] = field(default_factory=list)
    """Every create, apply and delete that was asked for by way of the verbs and changed something."""

    def __post_init__(self) -> None:
        self._kinds: defaultdict[Kind, dict[Ref, Record]] = defaultdict(dict)
        self._history: defaultdict[Kind, list[Entry]] = defaultdict(list)
        self._watchers: defaultdict[Kind, set[_Watcher]] = defaultdict(set)
        self._gone_namespaces: set[str] = set()
        self._version = 100
        self._compacted = 0
        self._forgotten: defaultdict[Kind, int] = defaultdict(int)
        self._made = 0
        self._repetitions = EventCache()

    # The eight verbs.

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> ObjectList:
        await self._begin_call("list", kind)
        items = [
            obj
            for obj in self.objects(kind)
            if selected(obj, namespace, labels) and (not fields or fields_match(obj, fields))
        ]
        listing = ObjectList(tuple(items), str(self._version))
        await asyncio.sleep(self.delay())
        return listing

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str | None = None, labels: str = ""
    ) -> AsyncGenerator[Change, None]:
        await self._begin_call("watch", kind)
        position = int(resource_version)
        if position < self._compacted:
            raise VersionExpired(f"too old resource version: {position} ({self._compacted})")
        watcher = _Watcher()
        self._watchers[kind].add(watcher)
        try:
            while True:
                history = self._history[kind]
                if position < self._forgotten[kind]:
                    raise VersionExpired(f"too old resource version: {position} ({self._compacted})")
                for entry in history[bisect_right(history, position, key=lambda entry: entry.version) :]:
                    position = entry.version
                    change = change_of(entry, namespace, labels)
                    if change is not None:
                        self._fault("watch", kind)
                        yield change
                if history and history[-1].version > position:
                    continue
                if watcher.ended:
                    return
                if watcher.bookmark:
                    watcher.bookmark = False
                    position = max(position, self._version)
                    yield bookmark(kind, position)
                watcher.wake.clear()
                await watcher.wake.wait()
        finally:
            self._watchers[kind].discard(watcher)

    async def get(self, kind: Kind, ref: Ref) -> Object:
        await self._begin_call("get", kind)
        obj = self.peek(kind, ref)
        await asyncio.sleep(self.delay())
        return obj

    async def create(self, obj: Object) -> Object:
        kind = kind_of(obj)
        await self._begin_call("create", kind)
        self._admit(obj)
        self._create(kind, obj, Writer(MANAGER, "Update", ""))
        return await self._finish_write("create", kind, ref_of(obj), self.peek(kind, ref_of(obj)))

    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        kind, ref = kind_of(obj), ref_of(obj)
        await self._begin_call("apply", kind)
        if not status:
            self._admit(obj)
        before = self._version
        try:
            answer = self._apply(kind, ref, obj, Writer(manager, "Apply", "status" if status else ""))
        except ApplyConflict as conflict:
            raise FieldConflict(str(conflict)) from None
        return await self._finish_write("apply", kind, ref, answer) if self._version > before else answer

    async def merge(self, change: Object) -> Object:
        kind, ref = kind_of(change), ref_of(change)
        await self._begin_call("merge", kind)
        self._admit(change)
        before = self._version
        found = self.peek(kind, ref)
        for name, problem in (("uid", "uid mismatch"), ("resourceVersion", "the object has been modified")):
            if change["metadata"].get(name, found["metadata"][name]) != found["metadata"][name]:
                raise Conflict(f'cannot patch {kind.plural} "{ref.name}": {problem}')
        self._update(kind, ref, merge_patch(found, deep_copy(change)), Writer(MANAGER, "Update", ""))
        answer = self.peek(kind, ref)
        return await self._finish_write("merge", kind, ref, answer) if self._version > before else answer

    async def delete(self, kind: Kind, ref: Ref, *, uid: str | None = None) -> None:
        await self._begin_call("delete", kind)
        record = self._kinds[kind].get(ref)
        if record is None:
            return
        if uid is not None and uid_of(record.object) != uid:
            raise Conflict(f'the UID in the precondition ({uid}) does not match that of {kind} "{ref.name}"')
        if not is_deleted(record.object):
            self.remove(kind, ref)
            await self._finish_write("delete", kind, ref, {})

    async def event(self, event: Event) -> None:
        await self._begin_call("event", EVENT)
        earlier = self._repetitions.earlier_event(event)
        if earlier is not None and earlier[0] in self._kinds[EVENT]:
            ref, count = earlier[0], earlier[1] + 1
            self.put(
                self.peek(EVENT, ref) | {"count": count, "lastTimestamp": timestamp(self.now())}, MANAGER
            )
        else:
            ref, count = ref_of(self.put(event_object(event, self.now(), "test"), MANAGER)), 1
        self._repetitions.remember(event, ref, count)

    async def _begin_call(self, verb: str, kind: Kind) -> None:
        await asyncio.sleep(self.delay())
        self._fault(verb, kind)

    def _admit(self, obj: Object) -> None:
        error = self.refuses(obj)
        if error is not None:
            raise error

    def _fault(self, verb: str, kind: Kind) -> None:
        error = self.faults(verb, kind)
        if error is not None:
            raise error

    async def _finish_write(self, verb: str, kind: Kind, ref: Ref, answer: Object) -> Object:
        self.writes.append((verb, kind, ref))
        await asyncio.sleep(self.delay())
        error = self.faults(verb, kind)
        if isinstance(error, ClusterUnavailable):
            raise error
        return answer

    # What others do: people, other controllers, the kubelet, the garbage collector, etcd. No faults here.

    def objects(self, kind: Kind) -> tuple[Object, ...]:
        """All objects of a kind, by namespace and name."""
        return tuple(shown_object(record) for _, record in sorted(self._kinds[kind].items()))

    def glance(self, kind: Kind) -> tuple[Object, ...]:
        """All objects of a kind as they lie there: not copied, so only to be looked at."""
        return tuple(record.object for _, record in sorted(self._kinds[kind].items()))

    def peek(self, kind: Kind, ref: Ref) -> Object:
        """One object as the server would show it."""
        if ref not in self._kinds[kind]:
            raise NotFound(f'{kind.plural} "{ref.name}" not found')
        return shown_object(self._kinds[kind][ref])

    def put(self, obj: Object, manager: str = "kubectl") -> Object:
        """Create or replace an object, and its status where it says one."""
        kind, ref = kind_of(obj), ref_of(obj)
        if ref not in self._kinds[kind]:
            self._create(kind, obj, Writer(manager, "Update", ""))
        else:
            self._update(kind, ref, {**obj, "status": None}, Writer(manager, "Update", ""))
        if obj.get("status") is not None:
            self._update(kind, ref, {"status": obj["status"]}, Writer(manager, "Update", "status"))
        return self.peek(kind, ref)

    def remove(self, kind: Kind, ref: Ref) -> None:
        """Delete an object of the cluster; with finalizers it stays until they are gone."""
        record = self._kinds[kind][ref]
        if not record.object["metadata"].get("finalizers"):
            self._store(kind, ref, None)
        elif not is_deleted(record.object):
            content = deep_copy(record.object)
            content["metadata"]["deletionTimestamp"] = timestamp(self.now())
            content["metadata"]["deletionGracePeriodSeconds"] = 0
            if "generation" in content["metadata"]:
                content["metadata"]["generation"] += 1
            self._store(kind, ref, Record(content, record.owners))

    def remove_namespace(self, name: str) -> None:
        """Everything in it goes, and nothing can be made there any more."""
        self._gone_namespaces.add(name)
        for kind, records in list(self._kinds.items()):
            for ref in [ref for ref in records if ref.namespace == name]:
                self.remove(kind, ref)

    def collect_garbage(self) -> None:
        """Delete what has owners of which none is there any more."""
        while True:
            alive = {uid_of(record.object) for records in self._kinds.values() for record in records.values()}
            orphans = [
                (kind, ref)
                for kind, records in self._kinds.items()
                for ref, record in records.items()
                if (owners := record.object["metadata"].get("ownerReferences"))
                and not alive & {owner["uid"] for owner in owners}
                and not is_deleted(record.object)
            ]
            for kind, ref in orphans:
                self.remove(kind, ref)
            if not orphans:
                return

    def compact(self) -> None:
        """Forget the past changes of every kind: a watch from an older version is `VersionExpired`."""
        self._compacted = self._version
        for kind, history in self._history.items():
            if history:
                self._forgotten[kind] = history[-1].version
            history.clear()

    def cut_watches(self, kind: Kind | None = None) -> None:
        """End the open watches of a kind, or all."""
        self._tell(kind, ended=True)

    def send_bookmarks(self) -> None:
        """Tell all watches the present version."""
        self._tell(None, bookmark=True)

    def _tell(self, kind: Kind | None, **news: bool) -> None:
        for watched, watchers in self._watchers.items():
            for watcher in watchers if kind in (None, watched) else ():
                for name, value in news.items():
                    setattr(watcher, name, value)
                watcher.wake.set()

    # Writing.

    def _create(self, kind: Kind, obj: Object, writer: Writer) -> None:
        ref = ref_of(obj)
        if ref in self._kinds[kind]:
            raise Conflict(f'{kind.plural} "{ref.name}" already exists')
        if ref.namespace in self._gone_namespaces:
            raise NotFound(f'namespaces "{ref.namespace}" not found')
        content = {key: value for key, value in deep_copy(obj).items() if key != "status"}
        self._made += 1
        content["metadata"] |= {
            "uid": f"{self._made:08x}-0000-4000-8000-000000000000",
            "creationTimestamp": timestamp(self.now()),
        }
        if kind.name not in WITHOUT_GENERATION:
            content["metadata"]["generation"] = 1
        owners = update({"metadata": {}}, content, {}, writer)
        if kind == SERVICE:
            address = f"10.96.{self._made >> 8}.{self._made & 255}"
            content.setdefault("spec", {}).setdefault("clusterIP", address)
        self._store(kind, ref, Record(content, owners))

    def _apply(self, kind: Kind, ref: Ref, obj: Object, writer: Writer) -> Object:
        record = self._kinds[kind].get(ref)
        uid, version = obj["metadata"].get("uid"), obj["metadata"].get("resourceVersion")
        if writer.subresource and kind.api.startswith("fedsilo.io/"):
            uid = None  # the status of a custom resource: only the version counts
        if record is None:
            if uid is not None:
                raise Conflict(f"uid mismatch: the provided object specified uid {uid}, and none was found")
            if writer.subresource:
                raise NotFound(f'{kind.plural} "{ref.name}" not found')
            self._create(kind, obj, writer)
            return self.peek(kind, ref)
        if uid not in (None, uid_of(record.object)):
            raise Conflict(f'{kind} "{ref.name}" is invalid: metadata.uid: field is immutable')
        if version not in (None, record.object["metadata"]["resourceVersion"]):
            raise Conflict(f'cannot fulfil on {kind.plural} "{ref.name}": the object has been modified')
        wanted = {key: value for key, value in obj.items() if (key == "status") == bool(writer.subresource)}
        force = bool(writer.subresource)
        content, owners = apply(record.object, deep_copy(wanted), record.owners, writer, force=force)
        answer = Record(default_fields(kind, record.object, content), owners)
        self._change(kind, ref, answer)
        return shown_object(self._kinds[kind].get(ref, answer))

    def _update(self, kind: Kind, ref: Ref, parts: dict[str, Any], writer: Writer) -> None:
        """Replace parts of an object; metadata as far as it can be written."""
        before = self._kinds[kind][ref]
        content = replace_parts(before.object, parts)
        self._change(kind, ref, Record(content, update(before.object, content, before.owners, writer)))

    def _change(self, kind: Kind, ref: Ref, record: Record) -> None:
        before = self._kinds[kind][ref]
        if record.object == before.object and record.owners == before.owners:
            return
        refuse_change(kind, before.object, record.object)
        metadata = dict(record.object["metadata"])
        if "generation" in metadata and intent(record.object) != intent(before.object):
            metadata["generation"] += 1
        content = {**record.object, "metadata": metadata}
        if is_deleted(content) and not metadata.get("finalizers"):
            self._store(kind, ref, None)
        else:
            self._store(kind, ref, Record(content, record.owners))

    def _store(self, kind: Kind, ref: Ref, record: Record | None) -> None:
        self._version += 1
        before = self._kinds[kind].get(ref)
        if record is None:
            del self._kinds[kind][ref]
        else:
            version = {"resourceVersion": str(self._version)}
            record.object = {**record.object, "metadata": record.object["metadata"] | version}
            self._kinds[kind][ref] = record
        entry = Entry(
            self._version, shown_object(before) if before else None, shown_object(record) if record else None
        )
        self._history[kind].append(entry)
        self._tell(kind)
