"""An aggregator that answers at once, with nothing or with tasks that nobody can do, is asked slowly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.wire import FINISH
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.task_source import TaskSource, decline

HOUR = 3600.0


class Aggregator:
    """An aggregator that answers at once, and time that passes only where somebody waits.

    :ivar asked: when a task was asked for.
    :ivar after: the task that was named the last time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.failures: list[tuple[str, str, str]] = []
        self.held = 0.0
        self.after = ""
        self.answer: Callable[[int], bytes | None] = lambda _: None
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.pass_time)

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds

    async def task(self, after: str, wait: float) -> bytes | None:
        self.asked.append(self.now)
        self.after = after
        self.now += self.held + 0.0005
        if self.now > HOUR:
            raise Problem("job-finished", "an hour is over")
        return self.answer(len(self.asked))

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        self.failures.append((task, reason, message))


class Check:
    """Opens what is called `refused...` with an error, anything else as a task of that name."""

    def open(self, sealed: bytes) -> Any:
        name = sealed.decode()
        if name.startswith("refused"):
            raise Problem("signature-invalid", name)
        return SimpleNamespace(task=name)


@pytest.fixture
def aggregator(monkeypatch: pytest.MonkeyPatch) -> Aggregator:
    return Aggregator(monkeypatch)


def source(aggregator: Any, audit: AuditLog | None = None) -> TaskSource:
    check: Any = Check()
    return TaskSource(aggregator, check, audit)


async def test_an_aggregator_that_always_says_nothing_at_once_is_asked_every_two_seconds(
    aggregator: Aggregator,
) -> None:
    with pytest.raises(Problem, match="an hour"):
        await source(aggregator).next_task("r1")
    assert len(aggregator.asked) < HOUR / 2 + 20


async def test_one_that_holds_its_answer_is_asked_again_at_once(aggregator: Aggregator) -> None:
    aggregator.held = 25.0
    with pytest.raises(Problem, match="an hour"):
        await source(aggregator).next_task("r1")
    gaps = [later - sooner for sooner, later in zip(aggregator.asked, aggregator.asked[1:], strict=False)]
    assert max(gaps) < 25.01


async def test_tasks_that_are_answered_are_taken_without_a_pause(aggregator: Aggregator) -> None:
    tasks = source(aggregator)
    aggregator.answer = lambda number: b"r%d" % number
    for _ in range(1000):
        await tasks.next_task("")
        tasks.mark_answered()
    assert aggregator.now < 1


async def test_tasks_that_replace_each_other_are_taken_slowly(aggregator: Aggregator) -> None:
    tasks = source(aggregator)
    aggregator.answer = lambda number: b"r%d" % number
    with pytest.raises(Problem, match="an hour"):
        while True:
            await tasks.next_task("")
    assert len(aggregator.asked) < HOUR / 2 + 20


async def test_the_same_refusal_is_recorded_once_and_others_fill_no_disk(
    aggregator: Aggregator, tmp_path: Path
) -> None:
    audit = AuditLog(tmp_path)
    for answer, most in ((lambda _: b"refused", 1), (lambda number: b"refused %d" % number, HOUR / 2)):
        aggregator.now = 0.0
        aggregator.answer = answer
        with pytest.raises(Problem, match="an hour"):
            await source(aggregator, audit).next_task("")
        assert len(audit.path.read_bytes().splitlines()) < most + 20


async def test_a_log_that_is_full_of_refusals_holds_up_the_next_task(
    aggregator: Aggregator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(tmp_path)
    audit.allowance.spend((4 << 20) + (1 << 20) // 24 + 10)
    aggregator.answer = lambda number: b"r1"
    with pytest.raises(Problem, match="an hour"):
        await source(aggregator, audit).next_task("")
    assert aggregator.asked == [pytest.approx(HOUR, abs=2)]
    assert "fill the audit log" in caplog.text


async def test_a_guard_that_declines_says_why_in_its_own_log(
    aggregator: Aggregator, caplog: pytest.LogCaptureFixture
) -> None:
    names = iter([b"r1", None, None, b"refused", b"r2", FINISH.encode(), None])
    aggregator.answer = lambda _: next(names)
    client: Any = aggregator
    check: Any = Check()
    await decline(client, check, PolicyRefused("log.jsonl: line 3 does not follow"))
    assert [task for task, *_ in aggregator.failures] == ["r1", "r2"]
    assert aggregator.after == FINISH, "the aggregator waits for that"
    assert "PolicyRefused: log.jsonl: line 3 does not follow; every task is declined" in caplog.text
