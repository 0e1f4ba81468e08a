"""What the API server in memory keeps of an object, and what clients see of it and of its changes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import (
    CallRefused,
    Change,
)
from fedsilo_operator.objects import (
    CONFIG_MAP,
    JOB,
    Kind,
    is_deleted,
    labels_of,
    ref_of,
)
from tests.operator_fakes.ownership import Owners
from tests.operator_fakes.selectors import labels_match

WITHOUT_GENERATION = {
    "ConfigMap",
    "Event",
    "Lease",
    "PersistentVolumeClaim",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
}
"""Kinds whose objects have no generation."""

WRITABLE_FIELDS = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields of the metadata that a client may write."""


@dataclass
class Record:
    object: Object
    owners: Owners


@dataclass(frozen=True)
class Entry:
    """A line of a kind's history."""

    version: int
    before: Object | None
    after: Object | None


def selected(obj: Object, namespace: str | None, labels: str) -> bool:
    return namespace in (None, ref_of(obj).namespace) and labels_match(labels_of(obj), labels)


def change_of(entry: Entry, namespace: str | None, labels: str) -> Change | None:
    """What a watch with this selector sees: an object that no longer matches is deleted to it."""
    before = entry.before is not None and selected(entry.before, namespace, labels)
    after = entry.after is not None and selected(entry.after, namespace, labels)
    if not before and not after:
        return None
    kinds: dict[tuple[bool, bool], Literal["ADDED", "MODIFIED", "DELETED"]] = {
        (False, True): "ADDED",
        (True, True): "MODIFIED",
        (True, False): "DELETED",
    }
    content = deep_copy(entry.after if after else entry.before)
    content["metadata"]["resourceVersion"] = str(entry.version)
    return Change(kinds[before, after], content)


def bookmark(kind: Kind, version: int) -> Change:
    return Change(
        "BOOKMARK",
        {"apiVersion": kind.api, "kind": kind.name, "metadata": {"resourceVersion": str(version)}},
    )


def refuse_change(kind: Kind, before: Object, after: Object) -> None:
    """The rules about changes that the operator's own design leans on."""
    name = after["metadata"]["name"]
    new = set(after["metadata"].get("finalizers") or ()) - set(before["metadata"].get("finalizers") or ())
    if is_deleted(before) and new:
        raise CallRefused(
            f'{kind} "{name}" is invalid: metadata.finalizers: no new ones while it is being deleted'
        )
    if kind == CONFIG_MAP and before.get("immutable") and before.get("data") != after.get("data"):
        raise CallRefused(f'{kind} "{name}" is invalid: data: field is immutable when `immutable` is set')
    if kind == JOB and before["spec"].get("template") != after["spec"].get("template"):
        raise CallRefused(f'{kind} "{name}" is invalid: spec.template: field is immutable')


def default_fields(kind: Kind, before: Object, after: Object) -> Object:
    """An object with the defaults of fields that were taken out of it, as far as the operator leans on them."""
    if kind != JOB or "suspend" not in before["spec"] or "suspend" in after["spec"]:
        return after
    return {**after, "spec": {**after["spec"], "suspend": False}}


def intent(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def shown_object(record: Record) -> Object:
    content: Object = deep_copy(record.object)
    content["metadata"]["managedFields"] = [
        {"manager": writer.manager, "operation": writer.operation}
        | ({"subresource": writer.subresource} if writer.subresource else {})
        | ({"fieldsV1": {"f:spec": {"f:suspend": {}}}} if ("spec", "suspend") in owned else {})
        for writer, owned in record.owners.items()
    ]
    return content


def deep_copy(value: Any) -> Any:
    """A deep copy of JSON, many times faster than `copy.deepcopy`."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def merge_patch(content: Any, change: Any) -> Any:
    """JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    before = content if isinstance(content, dict) else {}
    changed = {
        name: merge_patch(before.get(name), value) for name, value in change.items() if value is not None
    }
    return {name: value for name, value in before.items() if name not in change} | changed


def replace_parts(obj: Object, parts: Mapping[str, Any]) -> Object:
    """The object with these parts in place of its own; metadata as far as it can be written."""
    content = {**obj, **{key: value for key, value in deep_copy(parts).items() if value is not None}}
    kept = {name: value for name, value in obj["metadata"].items() if name not in WRITABLE_FIELDS}
    written = {name: value for name, value in content["metadata"].items() if name in WRITABLE_FIELDS}
    return {**content, "metadata": kept | written}
