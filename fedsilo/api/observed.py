"""Reading an object of the API as plain data: its name, its status and conditions.

Typed models would refuse what a newer API server or operator adds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
"""An object as the API server gives it."""

UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""What an identity looks like: it may become the name of a directory."""


def reference(obj: Object) -> str:
    """`namespace/name` of an object."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def uid_of(obj: Object) -> str:
    """Identity of an object that exists."""
    return str(obj["metadata"]["uid"])


def status_of(obj: Object) -> Mapping[str, Any]:
    """The status, empty where there is none."""
    return obj.get("status") or {}


def condition(obj: Object, name: str) -> Mapping[str, Any] | None:
    """The object's condition of that type, if it has one."""
    return next((found for found in status_of(obj).get("conditions") or () if found["type"] == name), None)


def holds(obj: Object, name: str) -> bool:
    """Whether the condition of that type is True."""
    found = condition(obj, name)
    return found is not None and found["status"] == "True"
