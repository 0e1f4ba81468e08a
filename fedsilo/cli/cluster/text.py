"""What others wrote, such as a condition's message, as text for a terminal."""

from __future__ import annotations

from fedsilo.wire.problems import one_line


def plain_line(text: object) -> str:
    """A message on one line. Others wrote it, so nothing in it may control the terminal."""
    return one_line(" ".join(str(text).split()))


def sentence(text: object) -> str:
    """A message with a full stop at its end, and at the end of each of its lines."""
    lines = [plain_line(line) for line in str(text).splitlines()]
    return " ".join(line if line.endswith((".", "!", "?")) else f"{line}." for line in lines if line)
