"""A relay goes on when the other side does, however their news follow one another."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from fedsilo_operator.gateway.relay import BUFFER_BYTES, Relay


class Source(asyncio.Transport):
    """An aggregator's connection that sends what a test gives it, as long as it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.before = self.protocol = asyncio.Protocol()
        self.reading = True
        self.aborted = False

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    @override
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol  # type: ignore[assignment]

    @override
    def pause_reading(self) -> None:
        self.reading = False

    @override
    def resume_reading(self) -> None:
        self.reading = True

    @override
    def abort(self) -> None:
        self.aborted = True

    def send(self, data: bytes) -> None:
        relay = self.protocol
        assert isinstance(relay, Relay)
        assert self.reading
        while data and self.protocol is relay:
            buffer = relay.get_buffer(-1)
            part, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(part)] = part
            relay.buffer_updated(len(part))


class Sink:
    """The receiving end of a relay: a silo's connection."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.full = False
        self.drain = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.content += data

    async def wait_until_drained(self) -> None:
        while self.full:
            self.drain.clear()
            await self.drain.wait()


async def begin_relay(length: int) -> tuple[Source, Sink, asyncio.Task[None]]:
    source, sink = Source(), Sink()
    relay = Relay(source, length, sink.write, lambda: sink.full)
    work = asyncio.ensure_future(relay.run(sink.wait_until_drained, silence=3600))
    await asyncio.sleep(0)
    return source, sink, work


async def test_the_connection_is_given_back_with_the_last_byte() -> None:
    source, sink, work = await begin_relay(2 * BUFFER_BYTES + 3)
    source.send(b"a" * BUFFER_BYTES)
    assert not work.done()
    source.send(b"b" * (BUFFER_BYTES + 3))
    assert source.protocol is source.before
    await work
    assert bytes(sink.content) == b"a" * BUFFER_BYTES + b"b" * (BUFFER_BYTES + 3)
    assert (source.reading, source.aborted) == (True, False)


async def test_a_connection_that_brings_more_than_the_body_is_used_no_more() -> None:
    source, sink, work = await begin_relay(6)
    source.send(b"abcdef, and no part of it")
    await work
    assert bytes(sink.content) == b"abcdef"
    assert source.aborted


async def test_a_silo_that_catches_up_at_once_is_not_waited_for() -> None:
    """Full, and not full any more before the relay's own task has its turn."""
    source, sink, work = await begin_relay(6)
    sink.full = True
    source.send(b"abc")
    assert not source.reading
    sink.full = False
    for _ in range(5):
        await asyncio.sleep(0)
    source.send(b"def")
    await work
    assert bytes(sink.content) == b"abcdef"


async def test_nothing_is_read_while_the_silo_takes_nothing() -> None:
    source, sink, work = await begin_relay(6)
    sink.full = True
    source.send(b"abc")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not source.reading
    sink.full = False
    sink.drain.set()
    for _ in range(5):
        await asyncio.sleep(0)
    source.send(b"def")
    await work


@pytest.mark.parametrize("way", ["eof", "lost", "cancelled"])
async def test_a_connection_within_a_body_is_used_no_more(way: str) -> None:
    source, _, work = await begin_relay(6)
    source.send(b"abc")
    relay = source.protocol
    assert isinstance(relay, Relay)
    if way == "eof":
        relay.eof_received()
    elif way == "lost":
        relay.connection_lost(None)
    else:
        work.cancel()
    with pytest.raises((ConnectionError, asyncio.CancelledError)):
        await work
    assert source.aborted


async def test_bytes_that_arrive_put_off_the_end_of_patience() -> None:
    source, sink = Source(), Sink()
    relay = Relay(source, 6, sink.write, lambda: False)
    loop = asyncio.get_running_loop()
    now = loop.time()
    with pytest.MonkeyPatch.context() as patch:
        work = asyncio.ensure_future(relay.run(sink.wait_until_drained, silence=10))
        await asyncio.sleep(0)
        patch.setattr(loop, "time", lambda: now + 9)
        source.send(b"abc")
        patch.setattr(loop, "time", lambda: now + 18)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not work.done()
        patch.setattr(loop, "time", lambda: now + 28)
        with pytest.raises(TimeoutError):
            await work
    assert source.aborted
