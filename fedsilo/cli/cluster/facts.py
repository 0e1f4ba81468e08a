"""Objects of the cluster as plain data, and the words for their facts that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsilo.wire.problems import one_line

Object = Mapping[str, Any]
"""An object as the API server gives it."""

MOST_NAMES = 10
"""Names that a sentence lists; a job may have a thousand silos."""


def reference(obj: Object) -> str:
    """`namespace/name` of an object."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def plain(text: object) -> str:
    """A message on one line. Others wrote it, so nothing in it may steer a terminal."""
    return one_line(" ".join(str(text).split()))


def sentence(text: object) -> str:
    """A message with a full stop at its end, and at the end of each of its lines."""
    lines = [plain(line) for line in str(text).splitlines()]
    return " ".join(line if line.endswith((".", "!", "?")) else f"{line}." for line in lines if line)


def listed(names: Iterable[str]) -> str:
    """Names as a sentence has them: `a, b and c`."""
    *most, last = shortened(list(names), "others")
    return f"{', '.join(most)} and {last}" if most else last


def shortened(items: Sequence[str], rest: str) -> list[str]:
    """The first of many items, and how many are left out."""
    if len(items) <= MOST_NAMES:
        return list(items)
    return [*items[: MOST_NAMES - 1], f"{len(items) - MOST_NAMES + 1} {rest}"]


def size(count: float) -> str:
    """A number of bytes for a person, in decimal units."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"
