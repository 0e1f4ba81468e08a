"""The body of an answer, as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

from fedsilo.http.large_body import body_pieces
from fedsilo.hub.https import SILENCE_SECONDS


def answer_pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes | memoryview]:
    """An answer's body as it arrives: see `body_pieces`.

    :raises aiohttp.ClientError: when it breaks off, or nothing comes for too long.
    """
    owner = None if response.connection is None else response.connection.protocol
    return body_pieces(
        response.content, owner, response.content_length, response.headers, silence=SILENCE_SECONDS
    )
