"""Rules of server-side apply: who owns which field, and what an apply makes of an object.

After https://kubernetes.io/docs/reference/using-api/server-side-apply/, with list types by field name instead of a
schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from typing_extensions import override

from fedsilo.api.observed import Object

MAP_LISTS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "silos": ("name",),
    "datasets": ("name",),
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "hostAliases": ("ip",),
    "ownerReferences": ("uid",),
}
"""Lists that merge by a key of their items."""

SET_LISTS = {"finalizers"}
UNOWNED_FIELDS = {"apiVersion", "kind"}
OWNED_METADATA = {"labels", "annotations", "finalizers", "ownerReferences"}


class Writer(NamedTuple):
    """One entry of `managedFields`."""

    manager: str
    operation: str
    subresource: str


Path = tuple[Any, ...]
"""Field names, keys of list items as tuples, and "." for an item of a list as such."""

Owners = dict[Writer, frozenset[Path]]


@dataclass
class ApplyConflict(Exception):
    """Fields that the apply would change belong to others."""

    fields: list[tuple[Writer, Path]]

    @override
    def __str__(self) -> str:
        said = "; ".join(f'conflict with "{writer.manager}": {show(path)}' for writer, path in self.fields)
        return f"Apply failed with {len(self.fields)} conflict{'s' * (len(self.fields) > 1)}: {said}"


def show(path: Path) -> str:
    """A path as the API server writes it."""
    return "".join(
        f"[{','.join(f'{key}={value!r}' for key, value in part)}]" if isinstance(part, tuple) else f".{part}"
        for part in path
    )


def apply(
    live: Object, wanted: Object, owners: Owners, writer: Writer, *, force: bool = False
) -> tuple[Object, Owners]:
    """The object and its owners after an apply.

    :param wanted: all that this writer wants; what it owned alone and leaves out is removed.
    :param force: whether a field that would change is taken from whoever owns it.
    :raises ApplyConflict: when another writer owns a field that would change.
    """
    fields = leaves(wanted)
    present = leaves(live)
    lost = [
        (other, path)
        for other, owned in owners.items()
        if other != writer
        for path in sorted(owned & fields.keys(), key=str)
        if present.get(path) != fields[path]
    ]
    if lost and not force:
        raise ApplyConflict(lost)
    for other, path in lost:
        owners = owners | {other: owners[other] - {path}}
    others = frozenset[Path]().union(*(owned for other, owned in owners.items() if other != writer))
    dropped = owners.get(writer, frozenset()) - fields.keys() - others
    # Whole items first: the fields in them go with them.
    content = live
    for path in sorted(dropped, key=lambda path: (path[-1] != ".", str(path))):
        content = _remove_path(content, path)
    return _merge_fields(content, _ownable(wanted)), _nonempty(owners | {writer: frozenset(fields)})


def update(before: Object, after: Object, owners: Owners, writer: Writer) -> Owners:
    """The owners after a plain write: what it changed is the writer's alone."""
    old, new = leaves(before), leaves(after)
    changed = frozenset(path for path, value in new.items() if path not in old or old[path] != value)
    gone = changed | (old.keys() - new.keys())
    kept = {other: owned - gone for other, owned in owners.items() if other != writer}
    mine = (owners.get(writer, frozenset()) | changed) & new.keys()
    return _nonempty(kept | {writer: mine})


def _nonempty(owners: Owners) -> Owners:
    return {writer: owned for writer, owned in owners.items() if owned}


def leaves(obj: Object) -> dict[Path, Any]:
    """Every field that can be owned, with its value."""
    found: dict[Path, Any] = {}
    for name, value in _ownable(obj).items():
        _collect(value, (name,), name, found)
    return found


def _ownable(obj: Object) -> Object:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key in OWNED_METADATA}
    rest = {key: value for key, value in obj.items() if key not in UNOWNED_FIELDS and key != "metadata"}
    return {"metadata": metadata, **rest} if metadata else rest


def _collect(value: Any, path: Path, field: str, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value:
        for name, content in value.items():
            _collect(content, (*path, name), name, found)
    elif (keyed := _keyed_items(value, field)) is not None:
        for key, item in keyed.items():
            found[*path, key, "."] = key
            if isinstance(item, dict):
                _collect(item, (*path, key), "", found)
    else:
        found[path] = value


def _keyed_items(value: Any, field: str) -> dict[tuple[Any, ...], Any] | None:
    """Items of a list by their key; None for a list that is one value, and for what is no list."""
    if not isinstance(value, list):
        return None
    if field in SET_LISTS:
        return {(("", item),): item for item in value}
    if field == "ports":
        names: tuple[str, ...] = ("containerPort",) if all("containerPort" in i for i in value) else ("port",)
    else:
        names = MAP_LISTS.get(field, ())
    if not names or not all(isinstance(item, dict) and all(name in item for name in names) for item in value):
        return None
    return {tuple((name, item[name]) for name in names): item for item in value}


def _merge_fields(live: Any, wanted: Any, field: str = "") -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return live | {
            name: _merge_fields(live[name], value, name) if name in live else value
            for name, value in wanted.items()
        }
    old, new = _keyed_items(live, field), _keyed_items(wanted, field)
    if old is None or new is None:
        return wanted
    return list(
        (
            old | {key: _merge_fields(old[key], item) if key in old else item for key, item in new.items()}
        ).values()
    )


def _remove_path(value: Any, path: Path, field: str = "") -> Any:
    """The value less what the path names; maps and lists that this empties go too."""
    first, rest = path[0], path[1:]
    if isinstance(value, dict) and first in value:
        inner = _remove_path(value[first], rest, first) if rest else None
        kept = {name: content for name, content in value.items() if name != first}
        return kept if inner in (None, {}, []) else value | {first: inner}
    items = _keyed_items(value, field)
    if items is None or first not in items:
        return value
    if rest == (".",):
        return [item for key, item in items.items() if key != first]
    return [_remove_path(item, rest) if key == first else item for key, item in items.items()]
