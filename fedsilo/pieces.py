"""The bytes of a body as they arrive: each piece is worked on in a thread while the next one is received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import TypeVar

T = TypeVar("T")


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
            taking = asyncio.ensure_future(asyncio.to_thread(take, piece))
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
