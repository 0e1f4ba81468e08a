"""The body of an answer, as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

from fedsilo.hub.https import SILENCE_SECONDS
from fedsilo.large_body import LargeBody, arrived, is_large


async def answer_pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes | memoryview]:
    """An answer's body as it arrives; see `LargeBody` on how long a piece may be used. To be closed.

    :raises aiohttp.ClientError: when it breaks off, or nothing comes for too long.
    """
    content, connection, length = response.content, response.connection, response.content_length
    owner = None if connection is None else connection.protocol
    if owner is None or owner.transport is None or not is_large(content, length, response.headers):
        async for piece in content.iter_any():
            yield piece
        return
    begun = arrived(content)
    if missing := (length or 0) - content.total_bytes:
        owner.pause_reading()  # its own timer of silence stops with it
        with LargeBody(owner.transport, owner, content, missing, silence=SILENCE_SECONDS) as rest:
            for piece in begun:
                yield piece
            async for large in rest:
                yield large
    else:
        for piece in begun:
            yield piece
