"""Updates are streamed to disk while they are checked, and acknowledged only when durable.

A partial upload is a file beside the exchange's updates. Its bytes were checked as they came; after a restart the
file is fed to a fresh checker, and the silo continues from the offset that it is given. Whatever is refused is
removed at once, so that nothing half-written stays.

What a restart finds may be damaged: a power cut leaves zeros or a torn end. If it does not pass the checker, it is
dropped and the upload starts from 0. What lies in a block that is not complete yet can only be judged later; a
refusal then says nothing about the silo's update, so the silo is asked to send all of it again (`offset-mismatch`).

A task has one upload at a time. When the silo connects again, its connections before are dead, although this side
may not have noticed: all of them are closed, so that a silo whose network was interrupted need not wait for a timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.encodings.check import require_decodable_update
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import Problem
from fedsilo.files.durable import AppendedFile, sync, unlink
from fedsilo.http.threads import shielded_call, take_in_thread
from fedsilo.wire import AcceptedUpdate, ExpectedUpdate, UpdateCheck, VerifyKey
from fedsilo_aggregator.storage import storage_problem

log = logging.getLogger("fedsilo.aggregator")

CHUNK_BYTES = 1 << 20
"""Amount that is read at a time of what an earlier process has received."""


@dataclass(frozen=True)
class UploadRange:
    """Where the bytes of a request belong.

    :param length: bytes of the whole update.
    :param digest: of the update (`update_digest`), by which the silo recognises its own.
    """

    offset: int
    length: int
    digest: str


def _no_connection() -> None:
    """Hang up no connection, since none is sending."""


@dataclass
class _Partial:
    """An upload that is not complete.

    :ivar restored: whether some of its bytes were written by an earlier process.
    :ivar hang_up: closes the newest connection, whether it sends or waits for the one before to end.
    """

    expected: ExpectedUpdate
    key: VerifyKey
    path: Path
    size: int = 0
    restored: bool = False
    loaded: bool = False
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    hang_up: Callable[[], None] = field(default=_no_connection)
    checker: UpdateCheck = field(init=False)

    def __post_init__(self) -> None:
        self.checker = UpdateCheck(self.expected, self.key)

    @property
    def task(self) -> str:
        return self.expected.task


class UploadStore:
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
        expected = self._engine.expected_update(task, sender)
        partial = await self._partial(expected)
        return partial.size

    async def receive(
        self,
        task: str,
        sender: str,
        part: UploadRange,
        body: AsyncGenerator[bytes | memoryview],
        hang_up: Callable[[], None],
    ) -> bool:
        """Take bytes of an update; whether the update is now complete, durable and accepted.

        :param hang_up: breaks the connection that the body comes over.
        :raises Problem: as the update's check says, `offset-mismatch`, `too-long`, `already-accepted`, or
            `storage-full` when the disk is.
        """
        if self.is_accepted(task, part.digest):
            return True
        partial = await self._partial(self._engine.expected_update(task, sender))
        # Also a connection that only waits for the one before it is dead by now: it must not get its turn first.
        partial.hang_up()
        partial.hang_up = hang_up
        try:
            async with partial.lock:
                return await self._receive(partial, sender, part, body, hang_up)
        finally:
            if partial.hang_up is hang_up:
                partial.hang_up = _no_connection

    async def _receive(
        self,
        partial: _Partial,
        sender: str,
        part: UploadRange,
        body: AsyncGenerator[bytes | memoryview],
        hang_up: Callable[[], None],
    ) -> bool:
        """`receive` in its turn: the one before may have finished or lost the upload, and the round may be over."""
        task = partial.task
        if self.is_accepted(task, part.digest):
            return True
        expected = self._engine.expected_update(task, sender)
        if (
            partial.hang_up is not hang_up
            or self._partials.get(task) is not partial
            or part.offset != partial.size
        ):
            raise Problem(
                "offset-mismatch",
                f"task {task}: bytes from {part.offset} do not follow; ask for the offset",
            )
        # A connection that breaks here leaves what has come so far: the silo goes on from there.
        await self._append(partial, part, body, lambda: partial.hang_up is not hang_up)
        if partial.size < part.length:
            return False
        await shielded_call(self._accept(partial, expected, part))
        return True

    def is_accepted(self, task: str, digest: str) -> bool:
        """Whether this very update was accepted before.

        :raises Problem: `already-accepted` when another update of the same task was.
        """
        found = self._engine.accepted_digest(task)
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

    async def _partial(self, expected: ExpectedUpdate) -> _Partial:
        partial = self._partials.get(expected.task)
        if partial is None:
            path = self._engine.partial_path(expected.task)
            partial = _Partial(expected, self._keys[expected.sender], path)
            self._partials[expected.task] = partial
        async with partial.loading:
            if not partial.loaded:
                await shielded_call(_load(partial))
        return partial

    async def _append(
        self,
        partial: _Partial,
        part: UploadRange,
        body: AsyncGenerator[bytes | memoryview],
        overtaken: Callable[[], bool],
    ) -> None:
        """Take the body as it arrives.

        :param overtaken: whether the silo sends over another connection by now, from the offset that it was told.
        """
        arrived = partial.size

        async def pieces() -> AsyncIterator[bytes | memoryview]:
            nonlocal arrived
            async for piece in body:
                arrived += len(piece)
                if arrived > part.length or overtaken():
                    return
                yield piece

        def take(piece: bytes | memoryview) -> None:
            with self._dropping(partial):
                partial.checker.feed(piece)
                _require_announced(partial.checker.digest, part)
                file.append(piece)
                partial.size += len(piece)

        async with aclosing(body):
            with AppendedFile(partial.path, synced=True) as file:
                await take_in_thread(pieces(), take)
        if arrived > part.length:
            self._drop(partial)
            raise Problem("too-long", f"more than the {part.length} bytes that Upload-Length announced")

    async def _accept(self, partial: _Partial, expected: ExpectedUpdate, part: UploadRange) -> None:
        with self._dropping(partial):
            update = partial.checker.finish()
            _require_announced(update.digest, part)
            await asyncio.to_thread(self._store, expected, partial, update)
        del self._partials[expected.task]
        self._changed()

    def _store(self, expected: ExpectedUpdate, partial: _Partial, update: AcceptedUpdate) -> None:
        _require_stored(expected, partial)
        with partial.path.open("rb") as file:
            sync(file, partial.path)
        self._engine.accept(expected.sender, partial.path, update)

    @contextmanager
    def _dropping(self, partial: _Partial) -> Iterator[None]:
        """Drop the partial upload on every error inside the block."""
        try:
            yield
        except OSError as error:
            self._drop(partial)
            failure = storage_problem(error, "the update was dropped")
            if failure is not None:
                raise failure from error
            raise
        except Problem as problem:
            self._drop(partial)
            if not partial.restored:
                raise
            text = (
                f"task {partial.task}: what was received before a restart does not hold; send all of it again"
            )
            raise Problem("offset-mismatch", f"{text} ({problem})") from problem

    def _drop(self, partial: _Partial) -> None:
        """Forget an upload, in any thread: until its file is gone, a newcomer waits for its turn and is refused."""
        if self._partials.get(partial.task) is not partial:
            return
        try:
            unlink(partial.path, missing_ok=True)
        finally:
            del self._partials[partial.task]


async def _load(partial: _Partial) -> None:
    await asyncio.to_thread(_restore, partial)
    partial.loaded = True


def _restore(partial: _Partial) -> None:
    """Take up what an earlier process has received, if it passes the check."""
    try:
        with partial.path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                partial.checker.feed(piece)
                partial.size += len(piece)
        partial.restored = partial.size > 0
    except FileNotFoundError:
        return
    except (Problem, OSError) as error:
        log.warning("%s does not hold (%s); dropped, the upload starts again from 0", partial.path, error)
        partial.checker, partial.size = UpdateCheck(partial.expected, partial.key), 0
        unlink(partial.path, missing_ok=True)


def _require_announced(digest: str | None, part: UploadRange) -> None:
    """Return unless it is known by now that this is not the update that was announced.

    :raises Problem: `digest-mismatch`.
    """
    if digest is not None and digest != part.digest:
        raise Problem("digest-mismatch", f"the update's digest is {digest}, announced was {part.digest}")


def _require_stored(expected: ExpectedUpdate, partial: _Partial) -> None:
    """Check what can only be seen of the whole file.

    :raises Problem: `offset-mismatch` when it has not the bytes that were checked; as `require_decodable_update`.
    """
    stored = partial.path.stat().st_size
    if stored != partial.size:
        raise Problem(
            "offset-mismatch",
            f"task {partial.task}: {stored} of {partial.size} bytes are stored; send all of it again",
        )
    require_decodable_update(expected.contract, partial.path)
