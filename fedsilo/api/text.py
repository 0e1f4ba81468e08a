"""Text for people, such as how a sentence names many things, counts and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

MAX_ERROR_CHARACTERS = 2000
"""Most characters of an error of foreign code that a message quotes."""


def first_items(items: Sequence[str], count: int, rest: str = "more") -> list[str]:
    """So many items, and then how many are left out: `a`, `b`, `998 more`."""
    left_out = len(items) - count
    return [*items[:count], f"{left_out} {rest}"] if left_out > 0 else list(items)


def shortened_list(items: Sequence[str], limit: int, rest: str = "more") -> list[str]:
    """At most `limit` entries, the last of which says how many items are left out, if any are."""
    return list(items) if len(items) <= limit else first_items(items, limit - 1, rest)


def join_names(names: Sequence[str], limit: int, rest: str = "more") -> str:
    """Names within a sentence: `a, b and c`, or `a, b and 998 more`."""
    *before, last = shortened_list(names, limit, rest)
    return f"{', '.join(before)} and {last}" if before else last


def comma_separated(names: Collection[str], count: int = 10) -> str:
    """So many names, and how many are left out: `a, b, 998 more`, or `none`."""
    return ", ".join(first_items(list(names), count)) or "none"


def count_text(count: int, noun: str) -> str:
    """A number of things: `1 silo`, `2 silos`.

    :param noun: singular, with a regular plural.
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def severities(findings: Iterable[Mapping[str, object]]) -> str:
    """How many findings there are of each severity: `1 error, 2 warnings`."""
    counts = Counter(str(finding["severity"]) for finding in findings)
    return ", ".join(count_text(count, severity) for severity, count in counts.items())


def size(count: float) -> str:
    """A number of bytes, in decimal units."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def for_spreadsheet(text: str) -> str:
    """A text as a cell of a CSV file that no spreadsheet takes for a formula and runs (CWE-1236).

    What it begins with decides, so that an apostrophe in front makes it a text; numbers are no texts and stay as they
    are. A carriage return, which Python's writer does not quote, would end the row.
    """
    plain = text.replace("\r", " ")
    return f"'{plain}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else plain


def first_line(error: BaseException) -> str:
    """The first line that an error of foreign code says of itself, cut; its type where it says nothing."""
    try:
        lines = str(error).splitlines()
    except Exception:  # its text comes from foreign code, too
        lines = []
    return next(filter(None, map(str.strip, lines)), type(error).__name__)[:MAX_ERROR_CHARACTERS]
