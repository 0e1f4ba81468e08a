"""Lists in the message of a condition, cut short: people read the first lines."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LINES, MAX_LINE_CHARACTERS = 20, 1000
"""Lines of a message that lists silos or rejections, and characters of each."""


def join_lines(lines: Sequence[str], separator: str = "\n") -> str:
    """The first lines, and how many more there are."""
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return separator.join([*(line[:MAX_LINE_CHARACTERS] for line in lines[:MAX_LINES]), *more])
