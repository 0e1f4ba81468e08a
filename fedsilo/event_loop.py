"""The event loop of the processes that speak HTTP: uvloop's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

log = logging.getLogger("fedsilo")

T = TypeVar("T")

BROKEN_TLS = "Fatal error on SSL protocol"
"""What uvloop says of TLS whose connection is gone."""


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(report_loop_error)
        return runner.run(main)


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an event loop does with an error that no code of ours can catch.

    TLS over a connection that has just been closed is one for uvloop, with a traceback; for us it is a connection that
    broke, which whoever used it has noticed.
    """
    if context.get("message") == BROKEN_TLS:
        log.debug("a connection broke: %s", context.get("exception"))
    else:
        loop.default_exception_handler(context)
