"""Partial uploads that a restart finds damaged start again, and connections that say nothing block nobody."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings.registry import with_encoding
from fedsilo.errors import Problem
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.wire import AcceptedUpdate, Contract, ExpectedBlock, ExpectedUpdate, UpdateCheck, signed_part
from fedsilo_aggregator.uploads import UploadRange, UploadStore
from tests.unit.wire.examples import EXPECTED_UPDATE, KEY, write
from tests.updates import digest_of

TASK, SENDER = EXPECTED_UPDATE.task, EXPECTED_UPDATE.sender


class Exchange:
    """What uploads need of the round engine: one open task."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.taken: list[AcceptedUpdate] = []

    def expected_update(self, task: str, sender: str) -> ExpectedUpdate:
        assert (task, sender) == (TASK, SENDER)
        return EXPECTED_UPDATE

    def partial_path(self, task: str) -> Path:
        return self.directory / f"{task}.part"

    def accepted_digest(self, _task: str) -> str | None:
        return self.taken[0].digest if self.taken else None

    def accept(self, _silo: str, upload: Path, update: AcceptedUpdate) -> None:
        upload.rename(self.directory / "update")
        self.taken.append(update)


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


@pytest.fixture
def update(tmp_path: Path) -> bytes:
    return write(tmp_path / "signed")


def restarted_uploads(exchange: Exchange, changed: Callable[[], None] = lambda: None) -> UploadStore:
    """The uploads of a process that has just started."""
    engine: Any = exchange
    return UploadStore(engine, {SENDER: KEY.verify_key}, changed)


async def arriving(data: bytes) -> AsyncGenerator[bytes]:
    yield data


def whole_range(update: bytes, offset: int = 0) -> UploadRange:
    return UploadRange(offset, len(update), digest_of(update))


async def send(uploads: UploadStore, update: bytes, offset: int = 0) -> bool:
    return await uploads.receive(
        TASK, SENDER, whole_range(update, offset), arriving(update[offset:]), hang_up=lambda: None
    )


def flip_bit(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda update: bytes(len(update) // 2),
    "a flipped bit in its header": lambda update: flip_bit(update[:-20], 30),
    "a flipped bit in its signature": lambda update: flip_bit(update[:-20], 900),
    "zeros where the payload began": lambda update: update[:-200] + bytes(180),
    "more than all of it": lambda update: update + bytes(100),
}


@pytest.mark.parametrize("position", [30, -5], ids=["header", "payload"])
async def test_a_refused_update_is_not_kept_for_the_garbage_collector(
    position: int, exchange: Exchange, update: bytes
) -> None:
    uploads = restarted_uploads(exchange)
    damaged = flip_bit(update, position % len(update))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            with pytest.raises(Problem):
                await send(uploads, damaged)
        gc.collect()
        assert [found for found in gc.garbage if isinstance(found, memoryview | bytearray)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_partial_upload_that_a_restart_finds_with(
    damage: str, exchange: Exchange, update: bytes
) -> None:
    """Damage never costs the silo its update: the offset is 0 at once, or once the rest has shown the damage."""
    exchange.partial_path(TASK).write_bytes(DAMAGE[damage](update))
    uploads = restarted_uploads(exchange)
    offset = await uploads.offset(TASK, SENDER)
    if offset > 0:
        with pytest.raises(Problem, match=r"offset-mismatch: .*before a restart does not hold"):
            await send(uploads, update, offset)
        assert await uploads.offset(TASK, SENDER) == 0
    assert not exchange.partial_path(TASK).exists()
    assert await send(uploads, update)
    assert (exchange.directory / "update").read_bytes() == update


async def test_damage_that_shows_with_the_last_byte_only(exchange: Exchange, update: bytes) -> None:
    exchange.partial_path(TASK).write_bytes(flip_bit(update[:-1], len(update) - 3))
    uploads = restarted_uploads(exchange)
    offset = await uploads.offset(TASK, SENDER)
    assert offset == len(update) - 1
    with pytest.raises(Problem, match="offset-mismatch"):
        await send(uploads, update, offset)
    assert await send(uploads, update)


async def test_a_partial_upload_that_holds_goes_on(exchange: Exchange, update: bytes) -> None:
    exchange.partial_path(TASK).write_bytes(update[:500])
    uploads = restarted_uploads(exchange)
    assert await uploads.offset(TASK, SENDER) == 500
    assert await send(uploads, update, 500)


async def test_an_upload_of_another_file_with_the_same_header_does_not_go_on(
    exchange: Exchange, update: bytes
) -> None:
    """Both have the same name: the blocks tell that what came first is not of the update, and all of it comes again."""
    uploads, cut = restarted_uploads(exchange), len(update) - 2
    other = update[: cut - 4] + bytes(4) + update[cut:]
    assert digest_of(other) == digest_of(update)
    part = UploadRange(0, len(update), digest_of(update))
    assert not await uploads.receive(TASK, SENDER, part, arriving(other[:cut]), hang_up=lambda: None)
    with pytest.raises(Problem, match="digest-mismatch"):
        await send(uploads, update, cut)
    assert await uploads.offset(TASK, SENDER) == 0
    assert not exchange.partial_path(TASK).exists()
    assert await send(uploads, update)
    assert exchange.taken[0].digest == digest_of(update)


async def test_what_was_sent_as_a_whole_is_refused_for_what_it_is(exchange: Exchange, update: bytes) -> None:
    uploads = restarted_uploads(exchange)
    with pytest.raises(Problem, match="digest-mismatch"):
        await send(uploads, flip_bit(update, len(update) - 3))


async def test_500_connections_that_say_nothing_do_not_block_the_newest(
    exchange: Exchange, update: bytes
) -> None:
    uploads, cut = restarted_uploads(exchange), []

    async def hang(number: int) -> None:
        broken = asyncio.Event()

        async def silent_body() -> AsyncGenerator[bytes]:
            await broken.wait()
            raise ConnectionResetError
            yield b""

        def hang_up() -> None:
            cut.append(number)
            broken.set()

        await uploads.receive(TASK, SENDER, whole_range(update), silent_body(), hang_up)

    hanging = [asyncio.create_task(hang(number)) for number in range(500)]
    await uploads.offset(TASK, SENDER)
    while len(cut) < 499:
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await send(uploads, update)
    ends = await asyncio.gather(*hanging, return_exceptions=True)
    assert sorted(cut) == list(range(500)), "each is closed once, by the one after it"
    assert sum(isinstance(end, ConnectionResetError) for end in ends) == 1, "only one ever had its turn"
    assert {end.code for end in ends if isinstance(end, Problem)} == {"offset-mismatch"}


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EIO, "disk failed")], ids=["full", "failing"]
)
async def test_a_disk_that_takes_nothing_asks_for_the_update_later(
    number: int, words: str, exchange: Exchange, update: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "sync":
            raise OSError(number, "the system's words", str(step.path))
        perform()

    uploads = restarted_uploads(exchange)
    with monkeypatch.context() as failing:
        failing.setattr(durable, "intercept", fail)
        with pytest.raises(Problem, match=f"storage-full: the aggregator's {words}; the update was dropped"):
            await send(uploads, update)
    assert not exchange.partial_path(TASK).exists()
    assert await send(uploads, update)


async def test_what_cannot_be_decoded_is_refused_and_leaves_nothing(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Contract((ExpectedBlock("model", "w", (8,), "float32"),))
    contract = with_encoding(
        plain, UploadSpec.model_validate({"encoding": "topk", "fraction": 0.25}), frozenset({"w"})
    )
    monkeypatch.setattr(exchange, "expected_update", lambda *_: replace(EXPECTED_UPDATE, contract=contract))
    numbers = {"w.indices": np.array([3, 3], np.uint32), "w": np.ones(2, np.float32)}
    blocks = [(block, numbers[block.name]) for block in contract.blocks]
    update = write(exchange.directory / "signed", contract=contract, metrics={}, blocks=blocks)
    with pytest.raises(Problem, match=r"block w\.indices: must ascend") as refused:
        await send(restarted_uploads(exchange), update)
    assert refused.value.code == "malformed"
    assert not exchange.taken and not exchange.partial_path(TASK).exists()
    numbers["w.indices"][1] = 4
    update = write(exchange.directory / "signed", contract=contract, metrics={}, blocks=blocks)
    assert await send(restarted_uploads(exchange), update)


async def test_a_refused_upload_is_not_gone_on_with_while_its_file_is_removed(
    exchange: Exchange, update: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, cut = restarted_uploads(exchange), len(update) - 2
    assert not await uploads.receive(TASK, SENDER, whole_range(update), arriving(update[:cut]), lambda: None)
    removing, may_remove = threading.Event(), threading.Event()

    def delay_unlink(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "unlink" and step.path.suffix == ".part":
            removing.set()
            assert may_remove.wait(30)
        perform()

    monkeypatch.setattr(durable, "intercept", delay_unlink)
    wrong = whole_range(update, cut)
    refused = asyncio.create_task(
        uploads.receive(TASK, SENDER, wrong, arriving(bytes([update[cut] ^ 1, update[-1]])), lambda: None)
    )
    assert await asyncio.to_thread(removing.wait, 30)
    offset = await uploads.offset(TASK, SENDER)
    may_remove.set()
    with pytest.raises(Problem, match="digest-mismatch"):
        await refused
    with pytest.raises(Problem, match="offset-mismatch"):
        await send(uploads, update, offset)
    assert await send(uploads, update, await uploads.offset(TASK, SENDER))
    assert (exchange.directory / "update").read_bytes() == update


async def test_only_what_is_stored_whole_is_accepted(exchange: Exchange, update: bytes) -> None:
    uploads, cut = restarted_uploads(exchange), len(update) - 2
    assert not await uploads.receive(TASK, SENDER, whole_range(update), arriving(update[:cut]), lambda: None)
    exchange.partial_path(TASK).unlink()
    with pytest.raises(Problem, match=f"offset-mismatch: .* 2 of {len(update)} bytes are stored"):
        await send(uploads, update, cut)
    assert not exchange.taken
    assert await send(uploads, update)


async def test_an_update_that_is_being_stored_is_stored_before_its_upload_ends(
    exchange: Exchange, update: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[str] = []
    uploads = restarted_uploads(exchange, lambda: changes.append("accepted"))
    storing, may_store = threading.Event(), threading.Event()

    def delay_sync(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "sync":
            storing.set()
            assert may_store.wait(30)
        perform()

    monkeypatch.setattr(durable, "intercept", delay_sync)
    sending = asyncio.create_task(send(uploads, update))
    assert await asyncio.to_thread(storing.wait, 30)
    sending.cancel()
    closing = asyncio.create_task(uploads.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    may_store.set()
    await asyncio.wait_for(closing, 30)
    assert [taken.digest for taken in exchange.taken] == [digest_of(update)]
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert changes == ["accepted"]
    assert uploads._partials == {}


async def test_nobody_takes_up_again_what_another_is_taking_up(
    exchange: Exchange, update: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for the offset may go away while a thread reads what an earlier process has received."""
    exchange.partial_path(TASK).write_bytes(update[:-20])
    reading, may_read, readers = threading.Event(), threading.Event(), list[int]()
    feed = UpdateCheck.feed

    def delay_feed(checker: UpdateCheck, piece: bytes | memoryview) -> None:
        readers.append(threading.get_ident())
        reading.set()
        assert may_read.wait(30)
        feed(checker, piece)

    monkeypatch.setattr(UpdateCheck, "feed", delay_feed)
    uploads = restarted_uploads(exchange)
    asking = asyncio.create_task(uploads.offset(TASK, SENDER))
    assert await asyncio.to_thread(reading.wait, 30)
    asking.cancel()
    again = asyncio.create_task(uploads.offset(TASK, SENDER))
    await asyncio.wait([again], timeout=0.05)
    assert len(readers) == 1
    may_read.set()
    assert await again == len(update) - 20
    assert await send(uploads, update, len(update) - 20)


async def test_another_update_than_the_announced_one_is_refused_with_its_header(
    exchange: Exchange, update: bytes
) -> None:
    uploads, sent = restarted_uploads(exchange), 0
    signed = len(signed_part(exchange.directory / "signed"))

    async def body() -> AsyncGenerator[bytes]:
        nonlocal sent
        for start in range(0, len(update), 8):
            sent = start + 8
            yield update[start : start + 8]

    announced = UploadRange(0, len(update), "0" * 64)
    with pytest.raises(Problem, match="digest-mismatch"):
        await uploads.receive(TASK, SENDER, announced, body(), hang_up=lambda: None)
    assert signed <= sent <= signed + 24 < len(update)
    assert not exchange.partial_path(TASK).exists()
    assert await send(uploads, update)
