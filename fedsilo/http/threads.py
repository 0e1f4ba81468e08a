"""Work in threads that outlives whoever waits for it: what it writes is not left half done.

The bytes of a body are worked on piece by piece, while the next piece is received.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "pieces")
"""One thread for each core: more of them compete for the interpreter's lock (docs/performance.md)."""


async def take_in_thread(pieces: AsyncIterable[T], take: Callable[[T], None]) -> None:
    """Call `take` with every piece, one at a time and in order, in a thread; return when all were taken.

    At most one piece waits for the one before it, so that a slow disk or checker slows the sender down and fills no
    memory. After an error of either side, no piece is being worked on any more.
    """
    taking: asyncio.Future[None] | None = None
    try:
        async for piece in pieces:
            if taking is not None:
                await asyncio.shield(taking)
            taking = asyncio.get_running_loop().run_in_executor(_THREADS, take, piece)
            del piece
        if taking is not None:
            await asyncio.shield(taking)
    finally:
        cancelled: asyncio.CancelledError | None = None
        while taking is not None and not taking.done():
            try:
                await asyncio.wait({taking})
            except asyncio.CancelledError as error:  # the thread goes on, whoever cannot wait
                cancelled = error
        if taking is not None and not taking.cancelled():
            taking.exception()  # it was raised above, or another one goes before it
        taking = None  # an error and the frame that keeps it would live until the garbage collector comes by
        if cancelled is not None:
            raise cancelled


async def shielded_call(work: Coroutine[Any, Any, T]) -> T:
    """Await work in a thread to its end, also when cancelled: a thread cannot be stopped."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
