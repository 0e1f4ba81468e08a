"""The body of a silo's upload on its way to the aggregator, which never takes a part of it for the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.http.refusals import unreadable_body
from fedsilo_operator.gateway.limits import SILENCE_SECONDS
from fedsilo_operator.gateway.relay import ConnectionCutError, relay_request

LARGE_BYTES = 8 << 20
"""Length of an upload that is relayed past the HTTP library, which takes a connection."""


class Upload(aiohttp.Payload):
    """What the library writes as a request's body. Where it fails, the request of which it is part breaks.

    :param limit: most bytes that are taken.
    :ivar problem: why it is not whole.
    """

    def __init__(self, request: web.Request, limit: int) -> None:
        super().__init__(request)
        self.problem: Problem | None = None
        self._request = request
        self._limit = limit

    @property
    def is_large(self) -> bool:
        """Whether it is worth while to take the silo's connection from the library."""
        return (self._request.content_length or 0) >= LARGE_BYTES

    @override
    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the bytes as they arrive.

        :raises Problem: where they end early.
        """
        if self.is_large and isinstance(writer, StreamWriter):
            await self._relay(writer)
        else:
            async for piece in self._pieces():
                await writer.write(piece)

    async def _relay(self, writer: StreamWriter) -> None:
        try:
            await relay_request(self._request, writer, SILENCE_SECONDS)
        except TimeoutError:
            self._break(Problem("truncated", f"no byte of the body moved for {SILENCE_SECONDS:g} s"))
        except ConnectionCutError as error:
            self._break(unreadable_body(error))

    async def _pieces(self) -> AsyncIterator[bytes]:
        size, content = 0, self._request.content
        while not content.at_eof():
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    piece = await content.readany()
            except TimeoutError:
                self._break(Problem("truncated", f"no byte of the body came for {SILENCE_SECONDS:g} s"))
            except (OSError, web.RequestPayloadError) as error:
                self._break(unreadable_body(error))
            size += len(piece)
            if size > self._limit:
                self._break(
                    Problem("too-long", f"the body has more than the {self._limit} bytes that are taken")
                )
            if piece:
                yield piece

    def _break(self, problem: Problem) -> NoReturn:
        self.problem = problem
        raise problem

    @override
    def decode(self, *_: str) -> str:
        raise TypeError("the body of an upload is no text")
