"""What the aggregator answers: a response, or the refusal that it carries as a `Problem`."""

from __future__ import annotations

import json
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import aiohttp

from fedsilo.errors import Problem
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import MAX_ENVELOPE_BYTES
from fedsilo.wire.problems import STATUS, one_line
from fedsilo_agent.guard.text import bounded_text

MAX_DETAIL_BYTES = 1000
"""Bytes of a refusal's text that are kept."""


class AggregatorUnavailableError(Exception):
    """The aggregator cannot be reached or does not speak the protocol now; trying again may help."""


class Response:
    """A response whose refusal is raised as the `Problem` that it carries."""

    def __init__(
        self, request: AbstractAsyncContextManager[aiohttp.ClientResponse], https: HttpsClient
    ) -> None:
        self._request = request
        self._https = https

    async def __aenter__(self) -> aiohttp.ClientResponse:
        response = await self._request.__aenter__()
        try:
            # A web page with status 200 is no receipt: it is by something on the way, whatever it says.
            foreign = self._https.foreign_answer(response)
            if foreign is not None:
                raise AggregatorUnavailableError(foreign)
            if response.status >= 300:
                problem = await _problem(response)
                if isinstance(problem, Problem) and problem.code == "proof-expired":
                    raise Problem(
                        problem.code, self._https.clock_fault(response, time.time()) or problem.detail
                    )
                raise problem
        except BaseException as error:
            response.release()
            await self._request.__aexit__(type(error), error, error.__traceback__)
            raise
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._request.__aexit__(kind, error, trace)


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of a response, limited so that it cannot fill the guard's memory.

    :raises AggregatorUnavailableError: when it is larger.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            raise AggregatorUnavailableError(f"an answer of more than {limit} bytes")
    return bytes(body)


async def _problem(response: aiohttp.ClientResponse) -> Exception:
    try:
        document = json.loads(await read_bounded(response, MAX_ENVELOPE_BYTES))
        code = document["type"].removeprefix("urn:fedsilo:problem:")
        detail = document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AggregatorUnavailableError):
        # HEAD has no body to carry a document; a proxy may answer in a format of its own.
        code, detail = response.headers.get("Problem", ""), f"status {response.status}"
    if code in STATUS:
        return Problem(code, one_line(bounded_text(str(detail), MAX_DETAIL_BYTES)))
    reason = one_line(bounded_text(str(response.reason), MAX_DETAIL_BYTES))
    return AggregatorUnavailableError(f"status {response.status} {reason}")
