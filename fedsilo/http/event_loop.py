"""The event loop of the processes that speak HTTP: uvloop's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from fedsilo.errors import FedsiloError

log = logging.getLogger("fedsilo")

T = TypeVar("T")

BROKEN_TLS = "Fatal error on SSL protocol"
"""What uvloop says of TLS whose connection is gone."""

UVLOOP_FD_REUSED = "is used by transport"
"""What uvloop says of a new connection's file descriptor where it still counts that of a lost one as open (issue 653 of
MagicStack/uvloop). From then on it may read one connection's bytes as the other's.
"""


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end.

    :raises FedsiloError: the loop has mixed up two connections, which only a new process mends.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(report_loop_error)
        try:
            return runner.run(main)
        except RuntimeError as error:
            if UVLOOP_FD_REUSED not in str(error):
                raise
            raise FedsiloError(
                f"the event loop has mixed up two connections ({error}); start this process again"
            ) from error


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an event loop does with an error that no code of ours can catch.

    TLS over a connection that has just been closed is one for uvloop, with a traceback; for us it is a connection that
    broke, which whoever used it has noticed.
    """
    if context.get("message") == BROKEN_TLS:
        log.debug("a connection broke: %s", context.get("exception"))
    else:
        loop.default_exception_handler(context)
