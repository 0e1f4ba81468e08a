"""A guard that was told that the job is over ends, also when it is started once more and nobody is left to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.loop import Guard
from tests.unit.agent.test_guard import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_guard_that_is_started_once_more_after_the_end_asks_nobody(scene: Scene) -> None:
    """The aggregator may be gone by then."""
    await scene.run()
    scene.aggregator.tasks = []
    client: Any = None
    await Guard(scene.check, scene.volume, scene.key, client).run()
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
    await Guard(scene.check, scene.volume, scene.key, client).run()
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]
