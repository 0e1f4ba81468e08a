"""Connections to the outside: of what precedes an answer, only so much is taken.

An HTTP server may send any number of interim answers (status 100 to 199) before the answer. aiohttp skips them, and by
then it has parsed all that have arrived: a hostile server that sends nothing else would fill this side's memory.
"""

from __future__ import annotations

import functools
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

MAX_INTERIM_ANSWERS = 16
"""In a row; the protocol has none."""


def connector() -> aiohttp.TCPConnector:
    """Makes connections with this limit."""
    made = aiohttp.TCPConnector()
    made._factory = functools.partial(BoundedAnswers, loop=made._loop)  # type: ignore[assignment]
    return made


class BoundedAnswers(ResponseHandler):
    """One connection, which breaks when it carries nothing but interim answers."""

    _interim = 0

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take one answer that was parsed."""
        self._interim = self._interim + 1 if data[0].code < 200 else 0
        if self._interim <= MAX_INTERIM_ANSWERS:
            super().feed_data(data, size)
        elif self.transport is not None:
            self.abort()
            self.set_exception(aiohttp.ClientPayloadError("interim answers without end"))
