"""What is on record stays on the disk when the power goes, also after a try that failed or a process that died."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.methods.interface import Exchange, Phase, Reply
from fedsilo.methods.state import State
from fedsilo.silo.drop import damaged_file, write_drop
from fedsilo.silo.volume import Volume
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.exchanges import AuditedTask
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.trainer.mailbox import Mailbox
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

    def cut_power(self, seed: int | None = None) -> None:
        """Leave nothing of what was not synced; with a seed, some of it."""
        self._cache.cut(random.Random(seed), certain=seed is None)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setattr(durable, "intercept", made.take)
    return made


class ProcessKill(BaseException):
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
    disk.failing = {"sync-directory": ProcessKill()}
    with pytest.raises(ProcessKill):
        log.write("signature", digest="s")
    again = AuditLog(disk.volume / "audit")
    again.write("departure", task="t1", digest="d")
    disk.cut_power()
    assert AuditLog(disk.volume / "audit").record == again.record


def test_a_directory_whose_maker_died_outlives_a_power_cut(disk: Disk) -> None:
    directory = disk.volume / "a" / "b"
    for _ in range(2):
        disk.failing = {"sync-directory": ProcessKill()}
        with pytest.raises(ProcessKill):
            durable.make_directory(directory)
    durable.make_directory(directory)
    disk.cut_power()
    assert directory.is_dir()


async def test_an_update_that_is_sent_outlives_a_power_cut(disk: Disk) -> None:
    """Whether it was acknowledged is asked again, where the line that says so is lost."""
    directory = disk.volume / "outbox"
    durable.make_directory(directory)
    log = AuditLog(disk.volume / "audit")

    class Client:
        async def upload(self, task: str, path: Path, digest: str, *, new: bool) -> None:
            disk.cut_power()
            raise ProcessKill

    client: Any = Client()
    nobody: Any = None
    outbox = Outbox(directory, client, log, nobody)
    outbox.add("t1", digest_of(write(outbox.path("t1"))))
    with pytest.raises(ProcessKill):
        await outbox.send(AuditedTask("t1", 1, "train", None))
    assert Outbox(directory, client, log, nobody).holds("t1")


def test_an_update_on_record_outlives_a_power_cut(disk: Disk) -> None:
    """Each exchange is answered once, and of the answer nothing else need be left."""
    directory = disk.volume / "outbox"
    nobody: Any = None
    durable.make_directory(directory)
    outbox = Outbox(directory, nobody, AuditLog(disk.volume / "audit"), nobody)
    disk.failing = {}
    outbox.add("t1", digest_of(write(outbox.path("t1"))))
    disk.cut_power()
    again = Outbox(directory, nobody, AuditLog(disk.volume / "audit"), nobody)
    again.clear_unfinished()
    assert again.holds("t1")


@pytest.mark.parametrize("operation", ["sync-directory", "sync"])
def test_an_update_that_a_full_disk_kept_off_the_record_does_not_leave(disk: Disk, operation: str) -> None:
    directory = disk.volume / "outbox"
    nobody: Any = None
    durable.make_directory(directory)
    log = AuditLog(disk.volume / "audit")
    log.write("signature", digest="s")
    outbox = Outbox(directory, nobody, log, nobody)
    digest = digest_of(write(outbox.path("t1")))
    disk.failing = {operation: OSError(errno.ENOSPC, "full")}
    with pytest.raises(OSError, match="full"):
        outbox.add("t1", digest)
    assert list(directory.iterdir()) == []
    assert log.record.departures == {}


TREE = {"w": np.arange(1, 9, dtype=np.float32)}


def test_of_a_drop_that_a_power_cut_tore_nothing_is_taken_for_whole(disk: Disk) -> None:
    """Whichever part of it the disk has written, and of another one that it replaced."""
    found: set[str] = set()
    for seed in range(24):
        drop = disk.volume / "drop" / f"{seed}"
        answers = {}
        for samples in (3, 4):
            durable.make_directory(drop)
            write_drop(drop, {"w": TREE["w"] * samples}, {"samples": samples}, durable=False)
            answers[(drop / "reply.json").read_bytes()] = (drop / "tensors").read_bytes()
            durable.sync_directory(drop)
            if samples == 3:
                durable.remove_tree(drop)
        disk.cut_power(seed)
        damaged = damaged_file(drop, lambda path: path.open("rb"), 1 << 20)
        if damaged is None:
            assert (drop / "tensors").read_bytes() == answers[(drop / "reply.json").read_bytes()]
        found.add("none" if damaged is None else damaged.name)
        durable.remove_tree(drop)
    assert found == {"none", "tensors", "reply.json"}


@pytest.mark.parametrize("private", [State(), State(values={"step": 1})])
def test_an_answer_stays_beside_the_private_state_that_came_with_it(disk: Disk, private: State) -> None:
    """Computed again, it might be another one than the one that has left."""
    volume = Volume(disk.volume)
    volume.prepare()
    mailbox = Mailbox(volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])
    mailbox.deliver("r1", Reply(TREE, 3, private=private), State())
    disk.cut_power()
    Mailbox(volume, ()).clear()
    kept = (volume.state / "r1").exists()
    assert [kept, (volume.drop / "r1" / "reply.json").exists()] == [bool(private.values)] * 2
