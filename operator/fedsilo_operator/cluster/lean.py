"""Cached objects without what nothing reads: thousands of them must fit into a small process."""

from __future__ import annotations

import sys
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.objects import JOB, POD

_OF_PODS = {"args", "securityContext", "tolerations", "volumeMounts", "volumes"}

UNREAD = {
    JOB.name: frozenset(_OF_PODS | {"affinity", "initContainers", "metadata", "resources", "selector"}),
    POD.name: frozenset(_OF_PODS),
}
"""Kind -> fields of its spec, at any depth, that make up most of the object and that the operator never reads."""


def lean(obj: Object) -> Object:
    """A copy without what the operator never reads, such as `managedFields`; equal strings are kept once."""
    unread = UNREAD.get(obj["kind"], frozenset())
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    content = {
        name: _shared(value) for name, value in (obj | {"metadata": metadata}).items() if name != "spec"
    }
    return content | ({"spec": _shared(obj["spec"], unread)} if "spec" in obj else {})


def _shared(value: Any, unread: frozenset[str] = frozenset()) -> Any:
    if isinstance(value, dict):
        return {
            sys.intern(name): _shared(content, unread)
            for name, content in value.items()
            if name not in unread
        }
    if isinstance(value, list):
        return [_shared(item, unread) for item in value]
    return sys.intern(value) if type(value) is str else value
