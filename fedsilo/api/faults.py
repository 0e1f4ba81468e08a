"""One fault of a manifest, as a line that a person can act upon."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import override

from fedsilo.errors import ManifestInvalid

_WIDTH = 60

MAX_FAULTS = 100
"""Faults that are listed at once: nobody corrects more in one go, and each of thousands would cost time."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class AbsentValue(Enum):
    """The value of a fault that lies in something not being there."""

    ABSENT = 0


ABSENT_VALUE = AbsentValue.ABSENT

Finding = tuple[str, Any, str, str]
"""Path, value, problem and remedy: a fault before it is known where the document lies."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, where, and what to do.

    :param file: the file as the person named it.
    :param document: number, kind and name of the document as far as they are known; empty for the whole file.
    :param path: dotted path with [i] for list entries; empty for the whole document.
    :param value: what is written there, or `ABSENT_VALUE`.
    """

    file: str
    document: str
    path: str
    value: Any
    problem: str
    remedy: str

    def line(self) -> str:
        """The fault on one line, whatever characters the value has."""
        value = "" if self.value is ABSENT_VALUE else value_text(self.value)
        place = ": ".join(part for part in (self.file, self.document, self.path, value) if part)
        return " ".join(f"{place}: {self.problem}; {self.remedy}".split("\n"))

    @override
    def __str__(self) -> str:
        return self.line()


class ManifestFaults(ManifestInvalid):
    """All faults of a manifest at once; its text is one line for each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(fault.line() for fault in self.faults))


def first_faults(faults: Sequence[Fault]) -> list[Fault]:
    """The first `MAX_FAULTS` faults of a file, and one more that says that there are others."""
    listed = list(faults[:MAX_FAULTS])
    return listed if len(listed) == len(faults) else [*listed, truncation_fault(faults[0].file)]


def truncation_fault(file: str) -> Fault:
    """What stands for faults that are not listed."""
    return Fault(file, "", "", ABSENT_VALUE, "has more faults than these", "correct these first")


def value_text(value: Any) -> str:
    """A value as it would stand in the file, on one line of at most 60 characters."""
    if isinstance(value, tuple):
        value = list(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def dotted_path(path: Iterable[str | int]) -> str:
    """Keys and list positions as `spec.silos.refs[2].name`; a key that has dots itself stands in brackets."""
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            text += f".{part}"
        else:
            text += f"[{part}]"
    return text.removeprefix(".")
