"""Bodies that a proof binds: small, read as a whole, within a limit of time and bytes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from fedsilo.errors import Problem
from fedsilo_operator.gateway.limits import SILENCE_SECONDS

MAX_SMALL_BODY_BYTES = 16 << 10
"""Length of a failure report, or of an enrolment."""

MAX_STATUS_BYTES = 256 << 10
"""Length of a status report, or of an offer."""


async def small_body(request: web.Request, limit: int = MAX_SMALL_BODY_BYTES) -> bytes:
    """The whole body of a request, at most `limit` bytes.

    :raises Problem: `too-long` or `truncated`.
    """
    content = bytearray()
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            async for piece in request.content.iter_any():
                content += piece
                if len(content) > limit:
                    raise Problem("too-long", f"the body may have {limit} bytes, and has more")
    except TimeoutError as error:
        raise Problem("truncated", f"the body was not whole after {SILENCE_SECONDS:g} s") from error
    return bytes(content)


def json_object(body: bytes, *fields: str) -> dict[str, Any]:
    """The object that a body holds, with exactly these fields, or any where none are named.

    :raises Problem: `malformed`.
    """
    try:
        found = json.loads(body, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or (fields and found.keys() != set(fields)):
        wanted = f" with the fields {', '.join(fields)}, each once" if fields else ""
        raise Problem("malformed", f"the body is not a JSON object{wanted}")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found
