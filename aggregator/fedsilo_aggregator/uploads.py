"""Receiving updates: streamed to disk while they are checked, acknowledged only when durable.

A partial upload is a file beside the exchange's updates. Its bytes were checked as they came; after a restart the
file is fed to a fresh checker, and the silo continues from the offset that it is given. Whatever is refused is
removed at once, so that nothing half-written stays.

A task has one upload at a time. When the silo connects again, its connection before is dead, although this side
may not have noticed: it is closed, so that a silo whose network was interrupted need not wait for a timeout.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.durable import is_disk_full
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import Problem
from fedsilo.wire import Expected, UpdateChecker, VerifyKey

CHUNK_BYTES = 1 << 20
"""Amount that is hashed, checked and written at a time, in a thread: Python's cost per chunk bounds the rate."""


@dataclass(frozen=True)
class UploadRange:
    """Where the bytes of a request belong.

    :param length: bytes of the whole update.
    :param digest: hex sha256 of the whole update, by which the silo recognises its own.
    """

    offset: int
    length: int
    digest: str


def _no_connection() -> None:
    """Does nothing: no connection is sending."""


@dataclass
class _Partial:
    task: str
    path: Path
    checker: UpdateChecker
    size: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    hang_up: Callable[[], None] = field(default=_no_connection)


class Uploads:
    """The uploads of the open exchange.

    :param changed: called when an update was accepted.
    """

    def __init__(
        self, engine: RoundEngine, keys: Mapping[str, VerifyKey], changed: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._changed = changed
        self._partials: dict[str, _Partial] = {}

    async def offset(self, task: str, sender: str) -> int:
        """Bytes of the silo's unfinished update that are here already."""
        expected = self._engine.expected(task, sender)
        partial = await self._partial(expected)
        return partial.size

    async def receive(
        self,
        task: str,
        sender: str,
        part: UploadRange,
        body: AsyncIterable[bytes],
        hang_up: Callable[[], None],
    ) -> bool:
        """Take bytes of an update; whether the update is now complete, durable and accepted.

        :param hang_up: breaks the connection that the body comes over.
        :raises Problem: as the update's check says, `offset-mismatch`, `too-long`, `already-accepted`, or
            `storage-full` when the disk is.
        """
        if self.is_accepted(task, part.digest):
            return True
        partial = await self._partial(self._engine.expected(task, sender))
        partial.hang_up()
        async with partial.lock:
            # The previous holder of the lock may have finished or lost this upload, and the round may be over.
            if self.is_accepted(task, part.digest):
                return True
            expected = self._engine.expected(task, sender)
            if self._partials.get(task) is not partial or part.offset != partial.size:
                raise Problem(
                    "offset-mismatch",
                    f"task {task}: bytes from {part.offset} do not follow; ask for the offset",
                )
            partial.hang_up = hang_up
            try:
                # A connection that breaks here leaves what has come so far: the silo goes on from there.
                await self._append(partial, part, body)
            finally:
                partial.hang_up = _no_connection
            if partial.size < part.length:
                return False
            with self._dropping(partial):
                await self._accept(partial, expected, part)
        return True

    def is_accepted(self, task: str, digest: str) -> bool:
        """Whether this very update was accepted before.

        :raises Problem: `already-accepted` when another update of the same task was.
        """
        found = self._engine.accepted(task)
        if found is not None and found != digest:
            raise Problem(
                "already-accepted", f"task {task}: another update, {found[:12]}, was accepted before"
            )
        return found is not None

    async def close(self) -> None:
        """End the uploads of an exchange that is over: from now on nothing writes into its directory."""
        for partial in list(self._partials.values()):
            partial.hang_up()
            async with partial.lock:
                self._drop(partial)

    async def _partial(self, expected: Expected) -> _Partial:
        partial = self._partials.get(expected.task)
        if partial is None:
            path = self._engine.partial_path(expected.task)
            fresh = _Partial(expected.task, path, UpdateChecker(expected, self._keys[expected.sender]))
            with self._dropping(fresh):
                await asyncio.to_thread(_refeed, fresh)
            partial = self._partials.setdefault(expected.task, fresh)
        return partial

    async def _append(self, partial: _Partial, part: UploadRange, body: AsyncIterable[bytes]) -> None:
        buffer = bytearray()
        async for piece in body:
            buffer += piece
            if partial.size + len(buffer) > part.length:
                self._drop(partial)
                raise Problem("too-long", f"more than the {part.length} bytes that Upload-Length announced")
            if len(buffer) >= CHUNK_BYTES:
                await self._flush(partial, buffer)
                buffer = bytearray()
        await self._flush(partial, buffer)

    async def _flush(self, partial: _Partial, buffer: bytearray) -> None:
        with self._dropping(partial):
            await asyncio.to_thread(_check_and_write, partial, buffer)

    async def _accept(self, partial: _Partial, expected: Expected, part: UploadRange) -> None:
        update = partial.checker.finish()
        if update.digest != part.digest:
            raise Problem(
                "digest-mismatch", f"the update's digest is {update.digest}, announced was {part.digest}"
            )
        await asyncio.to_thread(_sync, partial.path)
        self._engine.accept(expected.sender, partial.path, update)
        del self._partials[expected.task]
        self._changed()

    @contextmanager
    def _dropping(self, partial: _Partial) -> Iterator[None]:
        """Drop the partial upload on every error inside the block."""
        try:
            yield
        except OSError as error:
            self._drop(partial)
            if is_disk_full(error):
                text = "the aggregator's disk is full; the update was dropped, send it again later"
                raise Problem("storage-full", text) from error
            raise
        except Problem:
            self._drop(partial)
            raise

    def _drop(self, partial: _Partial) -> None:
        if self._partials.get(partial.task) is partial:
            del self._partials[partial.task]
        partial.path.unlink(missing_ok=True)


def _refeed(partial: _Partial) -> None:
    if not partial.path.exists():
        return
    with partial.path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            partial.checker.feed(piece)
            partial.size += len(piece)


def _check_and_write(partial: _Partial, buffer: bytearray) -> None:
    partial.checker.feed(memoryview(buffer))
    with partial.path.open("ab") as file:
        file.write(buffer)
    partial.size += len(buffer)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
