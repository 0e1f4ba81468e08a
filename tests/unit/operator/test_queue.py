"""The work queue against a model of what it promises, on a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from fedsilo_operator.objects import FEDERATED_JOB, Ref
from fedsilo_operator.runtime.queue import (
    BURST,
    RETRIES_PER_SECOND,
    Key,
    Queue,
    TokenBucket,
)
from tests.operator_fakes import virtual

KEYS = [Key(FEDERATED_JOB, Ref("n", name)) for name in "abc"]
keys = st.sampled_from(KEYS)


class Machine(RuleBasedStateMachine):
    """`waiting`, `working` and `due` are what an honest queue would have."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = virtual.VirtualLoop()
        self.queue = Queue(draw=lambda: 0.5)
        self.waiting: set[Key] = set()
        self.working: set[Key] = set()
        self.due: dict[Key, float] = {}
        self.failures = dict.fromkeys(KEYS, 0)

    def _do(self, act: Callable[[], object]) -> None:
        async def acting() -> None:
            act()

        self.loop.run_until_complete(acting())

    def _promise(self, key: Key, seconds: float) -> None:
        if key not in self.waiting:
            when = self.loop.time() + seconds
            self.due[key] = min(when, self.due.get(key, when))

    @rule(key=keys)
    def add(self, key: Key) -> None:
        self._do(lambda: self.queue.add(key))
        self.waiting.add(key)
        self.due.pop(key, None)

    @rule(key=keys, seconds=st.integers(1, 20))
    def add_after(self, key: Key, seconds: int) -> None:
        self._promise(key, seconds)
        self._do(lambda: self.queue.add_after(key, seconds))

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        for key in [key for key, when in self.due.items() if when <= self.loop.time()]:
            del self.due[key]
            self.waiting.add(key)

    @precondition(lambda self: self.waiting - self.working)
    @rule()
    def take(self) -> None:
        key, _ = self.loop.run_until_complete(asyncio.wait_for(self.queue.get(), 0.001))
        assert key in self.waiting - self.working
        self.waiting.discard(key)
        self.working.add(key)

    @precondition(lambda self: not self.waiting - self.working)
    @rule()
    def nothing_to_take(self) -> None:
        with pytest.raises(TimeoutError):
            self.loop.run_until_complete(asyncio.wait_for(self.queue.get(), 0))
        self.time_passes(1)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), outcome=st.sampled_from(["done", "again", "failed"]))
    def finish(self, data: st.DataObject, outcome: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.working, key=str)))
        if outcome == "failed":
            self._promise(key, min(300.0, 2.0 ** self.failures[key]))
            self.failures[key] += 1
            self._do(lambda: self.queue.retry(key))
        else:
            self.failures[key] = 0
            self.queue.forget(key)
        if outcome == "again":
            self._promise(key, 7)
            self._do(lambda: self.queue.add_after(key, 7))
        self._do(lambda: self.queue.mark_done(key))
        self.working.discard(key)

    @invariant()
    def counts(self) -> None:
        assert len(self.queue) == len(self.waiting)

    @override
    def teardown(self) -> None:
        # Whatever was promised comes: nothing is lost.
        for key in list(self.working):
            self._do(lambda key=key: self.queue.mark_done(key))  # type: ignore[misc]
        self.working.clear()
        self.time_passes(1000)
        while self.waiting:
            self.take()
            self._do(lambda: self.queue.mark_done(self.working.pop()))
        self.loop.close()


TestQueue = Machine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40)


def test_a_key_that_fails_waits_longer_each_time_and_five_minutes_at_most() -> None:
    async def waits(draw: float) -> list[float]:
        queue, loop, found = Queue(lambda: draw), asyncio.get_running_loop(), []
        for _ in range(12):
            before = loop.time()
            queue.retry(KEYS[0])
            queue.mark_done((await queue.get())[0])
            found.append(loop.time() - before)
        return found

    middle = virtual.run(waits(0.5))
    assert middle == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300])
    assert virtual.run(waits(0)) == pytest.approx([0.8 * wait for wait in middle])
    assert virtual.run(waits(1)) == pytest.approx([1.2 * wait for wait in middle])


def test_a_change_need_not_wait_for_the_retry() -> None:
    async def body() -> None:
        queue = Queue(lambda: 0.5)
        queue.retry(KEYS[0], at_least=60)
        queue.add(KEYS[0])
        queue.mark_done((await queue.get())[0])
        await asyncio.sleep(1000)
        assert len(queue) == 0, "the appointment went with it"

    virtual.run(body())


def test_the_time_that_a_key_waits_for_a_worker_is_reported() -> None:
    async def body() -> None:
        queue = Queue()
        queue.add_after(KEYS[0], 5)
        await asyncio.sleep(7)
        queue.add(KEYS[0])
        assert await queue.get() == (KEYS[0], 2), "neither an appointment nor a second change counts"
        queue.add(KEYS[0])
        await asyncio.sleep(3)
        queue.mark_done(KEYS[0])
        assert await queue.get() == (KEYS[0], 3), "a worker has it still, and it waits all the same"

    virtual.run(body())


def test_many_failures_at_once_come_back_a_few_at_a_time() -> None:
    async def body() -> int:
        queue = Queue(lambda: 0.5)
        for number in range(300):
            queue.retry(Key(FEDERATED_JOB, Ref("n", str(number))))
        await asyncio.sleep(2)
        return len(queue)

    assert virtual.run(body()) == BURST + 2 * RETRIES_PER_SECOND


def test_a_bucket_fills_up_again() -> None:
    bucket = TokenBucket(rate=2, burst=3)
    assert [bucket.take(0) for _ in range(5)] == [0, 0, 0, 0.5, 1]
    assert bucket.take(2) == 0
    assert [bucket.take(100) for _ in range(4)] == [0, 0, 0, 0.5]
