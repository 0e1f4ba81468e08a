"""A piece is worked on while the next one arrives, and nothing is worked on after an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from fedsilo.http.threads import take_in_thread


class Sender:
    """Sends numbers one after the other.

    :ivar sent: those that somebody has asked for.
    """

    def __init__(self, numbers: int, error: Exception | None = None) -> None:
        self.numbers, self.error = numbers, error
        self.sent: list[int] = []

    async def pieces(self) -> AsyncIterator[int]:
        for number in range(self.numbers):
            self.sent.append(number)
            yield number
        if self.error is not None:
            raise self.error


async def test_all_pieces_are_taken_in_order_and_in_threads() -> None:
    taken: list[tuple[int, bool]] = []
    await take_in_thread(
        Sender(100).pieces(),
        lambda piece: taken.append((piece, threading.current_thread() is threading.main_thread())),
    )
    assert taken == [(piece, False) for piece in range(100)]


async def test_one_piece_is_received_while_another_is_worked_on_and_no_more() -> None:
    sender, may_go_on, begun = Sender(10), threading.Semaphore(0), threading.Semaphore(0)

    def take(_: int) -> None:
        begun.release()
        may_go_on.acquire()

    taking = asyncio.create_task(take_in_thread(sender.pieces(), take))
    for number in range(10):
        await asyncio.to_thread(begun.acquire)
        for _ in range(10):
            await asyncio.sleep(0)
        assert sender.sent == list(range(min(number + 2, 10)))
        may_go_on.release()
    await taking


async def test_an_error_of_the_work_ends_the_receiving() -> None:
    sender = Sender(1000)

    def take(piece: int) -> None:
        if piece == 3:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        await take_in_thread(sender.pieces(), take)
    assert len(sender.sent) <= 5


async def test_what_has_come_before_a_connection_broke_is_taken_before_anybody_hears_of_it() -> None:
    taken: list[int] = []
    with pytest.raises(ConnectionResetError):
        await take_in_thread(Sender(7, ConnectionResetError()).pieces(), taken.append)
    assert taken == list(range(7))


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_nothing_is_worked_on_after_a_cancellation(cancellations: int) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def take(piece: int) -> None:
        begun.set()
        may_end.wait(30)
        ended.append(piece)

    taking = asyncio.create_task(take_in_thread(Sender(3).pieces(), take))
    await asyncio.to_thread(begun.wait)
    for _ in range(cancellations):
        taking.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert ended == [0]
