"""The large bodies of the aggregator's interface: updates as they arrive, blobs as they are sent."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from io import FileIO

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from typing_extensions import override

from fedsilo.http.large_body import body_pieces, file_pieces


def request_pieces(request: web.Request) -> AsyncGenerator[bytes | memoryview]:
    """A request's body as it arrives: see `body_pieces`.

    :raises OSError: when it breaks off; also `web.RequestPayloadError`, when it cannot be read.
    """
    connection = request.protocol
    renew = partial(_renew_parser, connection)
    return body_pieces(request.content, connection, request.content_length, request.headers, ended=renew)


def _renew_parser(connection: web.RequestHandler) -> None:
    """Have a connection parse what comes as a new request: its parser still waits for a body that passed it by.

    aiohttp has no public way to say that.
    """
    assert connection._parser is not None
    parser = type(connection._parser)
    connection._parser = parser(
        connection,
        connection._loop,
        connection._read_bufsize,
        max_line_size=connection.max_line_size,
        max_field_size=connection.max_field_size,
        max_headers=connection.max_headers,
        payload_exception=web.RequestPayloadError,
        auto_decompress=False,
        max_msg_queue_size=connection._max_msg_queue_size,
    )


class FileBody(web.StreamResponse):
    """A file, or a part of it. It is closed when it was sent.

    :param part: first byte, and the one after the last; None for all of it.
    :param count: called with the number of bytes once all of them were sent.
    """

    def __init__(self, file: FileIO, part: tuple[int, int] | None, count: Callable[[int], None]) -> None:
        super().__init__(status=200 if part is None else 206)
        size = os.fstat(file.fileno()).st_size
        self._file, self._count = file, count
        self._begin, self._end = part or (0, size)
        self.content_length = self._end - self._begin
        self.content_type = "application/octet-stream"
        self.headers["Accept-Ranges"] = "bytes"
        if part is not None:
            self.headers["Content-Range"] = f"bytes {self._begin}-{self._end - 1}/{size}"

    @override
    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        with self._file as file:
            writer = await super().prepare(request)
            end = self._begin if request.method == "HEAD" else self._end
            async for piece in file_pieces(file, self._begin, end):
                await self.write(piece)
        self._count(end - self._begin)
        return writer
