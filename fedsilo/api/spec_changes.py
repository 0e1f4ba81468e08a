"""Which fields of two specifications differ, by their dotted paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo.api.faults import ABSENT_VALUE, dotted_path


@dataclass(frozen=True)
class SpecChange:
    """One field in which a specification is not what it was.

    :param path: dotted, below the specification; a list is one field.
    :param before: its earlier value, or `ABSENT_VALUE`.
    :param after: its present value, or `ABSENT_VALUE`.
    """

    path: str
    before: Any
    after: Any


def spec_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[SpecChange]:
    """Every field that is not the same, in the order of its path."""
    return sorted(_differences((), before, after), key=lambda one: one.path)


def _differences(path: tuple[str, ...], before: Any, after: Any) -> Iterator[SpecChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in {*before, *after}:
            pair = before.get(name, ABSENT_VALUE), after.get(name, ABSENT_VALUE)
            yield from _differences((*path, name), *pair)
    elif before != after:
        yield SpecChange(dotted_path(path), before, after)
