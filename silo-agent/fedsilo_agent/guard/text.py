"""Text of the trainer's or the aggregator's, cut to what a log may hold: neither may fill the silo's disk with it."""

from __future__ import annotations

import json

MAX_TEXT_BYTES = 4000
"""Bytes that one text takes in a line of the audit log, in a failure report and in the guard's own log."""

_CUT_MARK = "... (cut)"


def bounded_text(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """The text, or so much of its beginning that JSON writes it with at most `limit` bytes.

    What is bounded already stays as it is, so that the audit log has the very text that leaves.
    """
    if len(text) <= limit and _size(text) <= limit:
        return text
    room, end = limit - len(_CUT_MARK), 0
    for letter in text[:room]:
        room -= _size(letter)
        if room < 0:
            break
        end += 1
    return text[:end] + _CUT_MARK


def _size(text: str) -> int:
    """Bytes of the text as JSON without its quotes: up to 12 for a character, since JSON escapes what is not ASCII."""
    return len(json.dumps(text)) - 2
