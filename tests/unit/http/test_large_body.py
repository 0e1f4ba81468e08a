"""A large body passes aiohttp by, whatever cuts it; the connection serves aiohttp before it, after it, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from fedsilo.http import large_body
from fedsilo.http.large_body import (
    ALL_BUFFERS_BYTES,
    MAX_BUFFER_BYTES,
    MIN_BUFFER_BYTES,
    SENT_BYTES,
    LargeBody,
    buffer_bytes,
    file_pieces,
)


class Wire(asyncio.Transport):
    """A connection that gives its protocol what a test lets arrive, as much at a time as a buffer takes."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.protocol: Any = owner
        self.waiting = bytearray()
        self.paused = self.aborted = False

    @override
    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    @override
    def pause_reading(self) -> None:
        self.paused = True

    @override
    def resume_reading(self) -> None:
        self.paused = False

    def arrive(self, data: bytes) -> None:
        """Bytes from the peer, which wait while nobody reads."""
        self.waiting += data
        self.deliver()

    def deliver(self) -> None:
        """Hand over what waits, as long as somebody reads."""
        while self.waiting and not self.paused:
            if isinstance(self.protocol, LargeBody):
                buffer = self.protocol.get_buffer(-1)
                count = min(len(buffer), len(self.waiting))
                assert count, "a buffer without room"
                buffer[:count] = self.waiting[:count]
                del self.waiting[:count]
                self.protocol.buffer_updated(count)
            else:
                self.protocol.data_received(bytes(self.waiting))
                self.waiting.clear()


class Owner(BaseProtocol):
    """What aiohttp has at a connection.

    :ivar received: bytes that are none of the body's.
    """

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.received = bytearray()
        self.lost: list[BaseException | None] = []
        self.transport = Wire(self)
        self.content = aiohttp.StreamReader(self, 1 << 16, loop=asyncio.get_running_loop())

    @property
    def wire(self) -> Wire:
        assert isinstance(self.transport, Wire)
        return self.transport

    @override
    def data_received(self, data: bytes) -> None:
        self.received += data

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self.content.set_exception(exc or ConnectionResetError("gone"))


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_body, "MIN_BUFFER_BYTES", 8)
    monkeypatch.setattr(large_body, "MAX_BUFFER_BYTES", 8)


@contextlib.contextmanager
def open_body(owner: Owner, length: int, **options: Any) -> Iterator[LargeBody]:
    with LargeBody(owner.wire, owner, owner.content, length, **options) as body:
        yield body


async def collected_body(body: AsyncIterator[memoryview], wire: Wire) -> bytes:
    """The body, of which each piece is used as late as it may be."""
    whole, last = bytearray(), memoryview(b"")
    async for piece in body:
        whole += last
        wire.deliver()
        last = piece
    return bytes(whole + last)


@given(
    body=st.binary(min_size=1, max_size=100),
    after=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 120), max_size=12),
)
async def test_the_body_is_what_was_sent_however_it_is_cut_and_what_follows_is_the_owners(
    body: bytes, after: bytes, cuts: Sequence[int]
) -> None:
    owner, sent = Owner(), body + after
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    ends = list[bytes]()
    with open_body(owner, len(body), ended=lambda: ends.append(bytes(owner.received))) as large:
        receiving = asyncio.create_task(collected_body(large, owner.wire))
        for begin, end in itertools.pairwise(places):
            owner.wire.arrive(sent[begin:end])
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while owner.wire.waiting:
                owner.wire.deliver()
                await asyncio.sleep(0)
            assert await receiving == body
    assert (bytes(owner.received), ends) == (after, [b""])
    assert owner.wire.protocol is owner
    assert owner.content.is_eof()


async def test_reading_stops_while_both_buffers_are_in_use() -> None:
    owner = Owner()
    with open_body(owner, 40) as large:
        owner.wire.arrive(bytes(range(40)))
        assert len(owner.wire.waiting) == 24
        first = await anext(large)
        second = await anext(large)
        assert len(owner.wire.waiting) == 24, "the first piece is still the taker's"
        assert bytes(first) + bytes(second) == bytes(range(16))
        waiting = asyncio.ensure_future(anext(large))
        await asyncio.sleep(0)
        owner.wire.deliver()
        assert bytes(second) == bytes(range(8, 16)), "a piece that may still be used was overwritten"
        assert bytes(await waiting) == bytes(range(16, 24))


async def test_a_body_that_is_left_is_read_to_its_end_and_dropped() -> None:
    """So the peer, who still sends, gets the refusal, and the connection can carry another request."""
    owner = Owner()
    with open_body(owner, 100) as large:
        owner.wire.arrive(bytes(30))
        await anext(large)
    assert owner.wire.protocol is large
    owner.wire.deliver()
    owner.wire.arrive(bytes(60))
    assert not owner.content.is_eof()
    owner.wire.arrive(bytes(10 + 14) + b"GET /")
    assert owner.content.is_eof()
    assert owner.received.endswith(b"GET /")


@pytest.mark.parametrize("error", [None, OSError("broken")])
async def test_a_body_that_breaks_off_gives_what_came_and_then_the_error(error: OSError | None) -> None:
    owner = Owner()
    with open_body(owner, 100) as large:
        owner.wire.arrive(b"0123456789")
        owner.wire.protocol.connection_lost(error)
        assert bytes(await anext(large)) == b"01234567"
        assert bytes(await anext(large)) == b"89"
        with pytest.raises(OSError, match="broken" if error else "gone"):
            await anext(large)
    assert owner.lost == [error]


async def test_a_peer_that_is_silent_is_given_up_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_body, "LOOK_SECONDS", 0.001)
    owner = Owner()
    with open_body(owner, 100, silence=0.01) as large, pytest.raises(aiohttp.SocketTimeoutError):
        await anext(large)


async def test_time_in_which_both_buffers_are_full_is_not_the_peers() -> None:
    owner = Owner()
    with open_body(owner, 100, silence=0.01) as large:
        owner.wire.arrive(bytes(16))
        assert large._timer is not None
        large._timer.cancel()
        large._heard -= 1
        large._look()
        assert owner.content.exception() is None
        assert len(await anext(large)) == 8


async def test_a_piece_that_was_handed_out_is_not_written_to_when_the_rest_is_dropped() -> None:
    owner = Owner()
    with open_body(owner, 100) as large:
        owner.wire.arrive(b"a" * 16)  # both buffers are full
        piece = await anext(large)
    owner.wire.arrive(b"b" * 84)
    assert bytes(piece) == b"a" * 8
    assert owner.wire.protocol is owner


async def test_the_second_buffer_is_made_when_the_first_is_full() -> None:
    owner = Owner()
    with open_body(owner, 100) as large:
        owner.wire.arrive(b"a" * 7)
        assert [len(buffer) for buffer in large._free] == [0]
        owner.wire.arrive(b"a")
        assert list(large._free) == []


async def test_a_request_that_aiohttp_gives_up_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_body, "LOOK_SECONDS", 0.001)
    owner = Owner()
    with open_body(owner, 100) as large:
        waiting = asyncio.ensure_future(anext(large))
        await asyncio.sleep(0)
        owner.content.set_exception(asyncio.CancelledError())
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize("bodies", [1, 8, 32])
def test_buffers_have_a_budget(monkeypatch: pytest.MonkeyPatch, bodies: int) -> None:
    monkeypatch.setattr(large_body, "MIN_BUFFER_BYTES", MIN_BUFFER_BYTES)
    monkeypatch.setattr(large_body, "MAX_BUFFER_BYTES", MAX_BUFFER_BYTES)
    assert MIN_BUFFER_BYTES <= buffer_bytes(bodies) <= MAX_BUFFER_BYTES
    assert 2 * bodies * buffer_bytes(bodies) <= ALL_BUFFERS_BYTES


async def test_a_file_is_sent_from_one_place_to_another(tmp_path: Path) -> None:
    content = hashlib.shake_128(b"file").digest(3 * SENT_BYTES + 5)
    (tmp_path / "file").write_bytes(content)
    with FileIO(tmp_path / "file") as file:
        found = [bytes(piece) async for piece in file_pieces(file, 7, len(content))]
    assert b"".join(found) == content[7:]
    assert max(map(len, found)) <= SENT_BYTES


async def test_a_file_that_is_not_in_memory_is_waited_for_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    read = os.preadv

    def preadv(descriptor: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError
        return int(read(descriptor, buffers, offset))

    monkeypatch.setattr(os, "preadv", preadv)
    with FileIO(tmp_path / "file") as file:
        assert [bytes(piece) async for piece in file_pieces(file, 0, 7)] == [b"content"]


async def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with FileIO(tmp_path / "file") as file, pytest.raises(OSError, match="ends at 7 of 8 bytes"):
        async for _ in file_pieces(file, 0, 8):
            pass
