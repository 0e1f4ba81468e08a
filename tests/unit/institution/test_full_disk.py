"""A disk that is full for a while, while the silo serves: said once, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsilo.files import durable
from fedsilo.files.json_files import read_json
from tests.operator_fakes.virtual import run
from tests.unit.institution.parts import UID, agent
from tests.unit.institution.test_hour import ServedInstitution


class FullDisk:
    """Refuses every step that takes room, and counts them."""

    def __init__(self) -> None:
        self.refused = 0
        self.full = False

    def __call__(self, step: durable.DiskStep, perform: Callable[[], None]) -> None:
        if self.full and step.operation in ("create", "append", "make-directory"):
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device", str(step.path))
        perform()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    made = FullDisk()
    monkeypatch.setattr(durable, "intercept", made)
    return made


def test_a_full_disk_is_said_once_and_nothing_is_lost(
    tmp_path: Path, disk: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedsilo.silo")

    async def run_institution() -> None:
        served = ServedInstitution(tmp_path / "silo")

        def read_heard() -> Any:
            return read_json(served.place.hub_version_file)

        await served.wait_until(lambda: served.hub.offer is not None)
        before = read_heard()
        disk.full = True
        served.hub.put(agent())
        asked = len(served.hub.requests)
        await asyncio.sleep(300)
        assert disk.refused > 100, "it tries again"
        assert len(served.hub.requests) >= asked + 5, "the hub is asked all the same"
        assert read_heard() == before
        assert not served.hub.statuses
        disk.full = False
        await served.wait_until(lambda: served.reported_phase() == "ApprovalPending")
        assert read_heard()["version"] == served.hub.version
        assert read_heard()["offer"] == before["offer"]
        assert served.place.record(UID).exists()
        await served.end()

    run(run_institution())
    said = [text for text in caplog.messages if "the disk is full" in text or "there is room" in text]
    root = tmp_path / "silo"
    assert said == [
        f"{root}: the disk is full; make room on it, and the silo goes on by itself: nothing is lost",
        f"{root}: there is room again, and the silo goes on",
    ]
