"""A guard that was told the end says so and ends, also when it is started once more, or nobody hears it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import Problem
from fedsilo.local.outcome import is_dismissed
from fedsilo.wire import FINISH
from fedsilo_agent.guard import task_source
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from tests.unit.agent.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def after_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Awaitable[None]]
) -> None:
    """What happens when the guard asks for what follows the end."""
    before = scene.aggregator.task

    async def task(after: str, wait: float) -> bytes | None:
        return await (answer() if after == FINISH else before(after, wait))

    monkeypatch.setattr(scene.aggregator, "task", task)


async def test_the_aggregator_hears_that_the_end_is_known_once_the_trainer_knows_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[bool, str]] = []

    async def note() -> None:
        known.append((is_dismissed(scene.volume), scene.events()[-1]))

    after_the_end(scene, monkeypatch, note)
    await scene.run()
    assert known == [(True, "finished")]


@pytest.mark.parametrize("refusal", [None, Problem("unknown-sender", "the silo was revoked")])
async def test_an_aggregator_that_is_gone_or_refuses_holds_up_no_guard(
    refusal: Problem | None, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        if refusal is not None:
            raise refusal
        await asyncio.Event().wait()

    after_the_end(scene, monkeypatch, refuse)
    monkeypatch.setattr(task_source, "CONFIRM_SECONDS", 0.01)
    caplog.set_level("INFO")
    await scene.run()
    said = "unknown-sender" if refusal else "no answer"
    assert f"the aggregator was not told that the end is known: {said}" in caplog.text


async def test_a_guard_that_is_started_once_more_after_the_end_asks_nobody(scene: Scene) -> None:
    """The aggregator may be gone by then."""
    await scene.run()
    scene.aggregator.tasks = []
    client: Any = None
    await Guard(GuardedJob(scene.check, scene.volume, scene.key, client)).run()
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_a_guard_that_dies_before_the_end_is_on_record_records_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = AuditLog.write

    def die(log: AuditLog, event: str, **facts: Any) -> None:
        if event == "finished":
            raise ZeroDivisionError
        write(log, event, **facts)

    with monkeypatch.context() as dying:
        dying.setattr(AuditLog, "write", die)
        with pytest.raises(ZeroDivisionError):
            await scene.run()
    assert "finished" not in scene.events()
    client: Any = None
    await Guard(GuardedJob(scene.check, scene.volume, scene.key, client)).run()
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]
