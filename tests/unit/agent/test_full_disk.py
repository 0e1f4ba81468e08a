"""A guard over a disk that is full waits for space, and loses nothing."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.conditions import GuardState
from fedsilo.files import durable, full_disk
from fedsilo_agent.guard import answering, audit, inbox
from tests.unit.agent.scene import TASK, Scene


def full_once(write: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which finds the disk full the first time."""
    tries: list[int] = []

    def on_a_full_disk(*arguments: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments, **options)

    return on_a_full_disk


@pytest.mark.parametrize(
    ("module", "name"),
    [(audit, "append_durably"), (answering, "sign_reply"), (inbox, "write_with_digest")],
    ids=["audit log", "update", "inbox"],
)
async def test_a_full_disk_is_waited_out(
    module: Any,
    name: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(module, name, full_once(getattr(module, name)))
    await scene.run()
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert "the disk is full" in caplog.text
    assert scene.aggregator.states[0] == GuardState.STORAGE_FULL
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_an_acknowledgement_for_which_there_is_no_space_is_not_asked_for_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator may have ended by the time at which the line can be written."""
    tries: list[str] = []
    append = durable.append_durably

    def on_a_full_disk(path: Path, line: str) -> None:
        if '"acknowledged"' in line and len(tries) < 3:
            tries.append(line)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        append(path, line)

    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(audit, "append_durably", on_a_full_disk)
    await scene.run()
    assert len(tries) == 3
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_blobs_for_which_there_is_no_space_now_are_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = shutil.disk_usage(scene.volume.root)
    usages = [found._replace(free=0), found]
    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usages.pop(0))
    await scene.run()
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert "0 are free" in caplog.text
