"""What is on record stays on the disk when the power goes, also after a try that failed or a process that died."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo import durable
from fedsilo.durable import DiskStep
from fedsilo.silo.drop import DIGESTS, damaged_file, write_drop
from fedsilo.wire import open_blob
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.outbox import Outbox
from tests.faults.page_cache import PageCache
from tests.unit.wire.examples import write
from tests.updates import digest_of

Perform = Callable[[], None]


class Disk:
    """A disk that fails one operation once, with an error of the test's choice.

    :ivar volume: its directory.
    """

    def __init__(self, root: Path) -> None:
        self.volume = root / "volume"
        self.volume.mkdir()
        self._cache = PageCache(self.volume, root / "record")
        self.failing: dict[str, BaseException] = {}

    def take(self, step: DiskStep, perform: Perform) -> None:
        if step.operation in self.failing:
            raise self.failing.pop(step.operation)
        self._cache.take(step, perform)

    def cut_power(self) -> None:
        self._cache.cut(random.Random(0), certain=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setattr(durable, "intercept", made.take)
    return made


class Killed(BaseException):
    """The end of a process."""


def test_the_first_line_of_a_log_outlives_a_full_disk_and_a_power_cut(disk: Disk) -> None:
    log = AuditLog(disk.volume / "audit")
    disk.failing = {"sync": OSError(errno.ENOSPC, "full")}
    with pytest.raises(OSError, match="full"):
        log.write("departure", task="t1", digest="d")
    log.write("departure", task="t1", digest="d")
    disk.cut_power()
    assert AuditLog(disk.volume / "audit").record.departures == {"t1": "d"}


def test_the_first_line_of_a_log_outlives_its_guard_and_a_power_cut(disk: Disk) -> None:
    disk.failing = {}
    log = AuditLog(disk.volume / "audit")
    disk.failing = {"sync-directory": Killed()}
    with pytest.raises(Killed):
        log.write("signature", digest="s")
    again = AuditLog(disk.volume / "audit")
    again.write("departure", task="t1", digest="d")
    disk.cut_power()
    assert AuditLog(disk.volume / "audit").record == again.record


async def test_an_update_that_is_sent_outlives_a_power_cut(disk: Disk) -> None:
    """Whether it was acknowledged is asked again, where the line that says so is lost."""
    directory = disk.volume / "outbox"
    durable.make_directory(directory)
    signed = write(disk.volume / "update")
    digest = digest_of(signed)
    log = AuditLog(disk.volume / "audit")
    log.write("departure", task="t1", digest=digest)

    class Client:
        async def upload(self, task: str, path: Path, digest: str) -> None:
            disk.cut_power()
            raise Killed

    client: Any = Client()
    outbox = Outbox(directory, client, log)
    durable.write_durably(outbox.path("t1").with_suffix(".signed"), signed)
    outbox.add("t1", outbox.path("t1").with_suffix(".signed"), digest)
    with pytest.raises(Killed):
        await outbox.send("t1")
    assert Outbox(directory, client, log).holds("t1")


def test_a_whole_drop_is_not_taken_for_a_damaged_one_after_a_power_cut(disk: Disk) -> None:
    drop = disk.volume / "drop"
    durable.make_directory(drop)
    write_drop(drop, {"w": np.ones(3, np.float32)}, b"{}")
    disk.cut_power()
    assert (drop / DIGESTS).exists()
    with open_blob(drop / "tensors") as tensors:
        assert tensors["w"].tolist() == [1, 1, 1]
    assert damaged_file(drop, lambda path: path.open("rb"), 1 << 20) is None
