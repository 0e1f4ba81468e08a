"""A guard over a disk that is damaged: nothing damaged is signed or sent, and no honest update is lost in silence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.files.json_files import write_with_digest
from fedsilo.silo.drop import write_drop
from fedsilo.silo.file_watch import ChangeWait
from fedsilo.wire import signed_part
from fedsilo_agent.guard import drops
from fedsilo_agent.guard.announced import Announcement
from fedsilo_agent.guard.drops import DropDirectory
from tests.integration.service.scripted import TREE
from tests.unit.agent.scene import TASK, Scene, guard_of
from tests.unit.wire.examples import write

REPLY = {"samples": 10, "metrics": {}, "support": {}}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def another_update(path: Path) -> None:
    """A whole update of a task that this guard never signed."""
    write(path)


OUTBOX_DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit of its last block": lambda path: flip(path, -1),
    "a flipped bit of its header": lambda path: flip(path, 40),
    "a flipped bit of a gap": lambda path: flip(path, len(signed_part(path))),
    "its end cut off": lambda path: os.truncate(path, path.stat().st_size - 1),
    "all but its header cut off": lambda path: os.truncate(path, len(signed_part(path))),
    "bytes after its end": lambda path: path.write_bytes(path.read_bytes() + b"\xc0"),
    "another whole update": another_update,
    "nothing": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", OUTBOX_DAMAGE)
async def test_an_update_that_is_damaged_in_the_outbox_is_signed_again(
    damage: str, killed_guard_scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    signed = killed_guard_scene.update.read_bytes()
    OUTBOX_DAMAGE[damage](killed_guard_scene.update)
    assert killed_guard_scene.update.read_bytes() != signed
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.uploads[TASK] == [signed]
    assert f"{killed_guard_scene.update}: damaged" in caplog.text
    assert killed_guard_scene.events() == ["signature", "departure", "departure", "acknowledged", "finished"]


async def test_a_damaged_blob_of_the_inbox_is_fetched_again(
    killed_guard_scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    killed_guard_scene.update.unlink()
    flip(killed_guard_scene.blob, -1)
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.fetched == 2
    assert killed_guard_scene.blob.read_bytes() == killed_guard_scene.aggregator.blob
    assert f"{killed_guard_scene.blob}: damaged" in caplog.text


@pytest.mark.parametrize("kept", [True, False])
async def test_a_task_whose_blobs_do_not_hold_is_taken_back_by_a_guard_that_starts(
    kept: bool, killed_guard_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator may be away: a trainer that starts would report the damage of a power cut as a failure."""
    if not kept:
        flip(killed_guard_scene.blob, -1)

    async def kill_guard(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(killed_guard_scene.aggregator, "task", kill_guard)
    killed_guard_scene.update.unlink()
    with pytest.raises(ZeroDivisionError):
        await killed_guard_scene.run()
    assert [killed_guard_scene.volume.task.exists(), killed_guard_scene.blob.exists()] == [kept, kept]


@pytest.mark.parametrize("holds", [True, False])
async def test_a_task_whose_update_waits_to_be_sent_is_taken_back_by_a_guard_that_starts(
    holds: bool, killed_guard_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may have taken the drop: a trainer that starts would do all of it again."""
    if not holds:
        flip(killed_guard_scene.update, -1)

    async def kill_guard(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(killed_guard_scene.aggregator, "upload", kill_guard)
    monkeypatch.setattr(killed_guard_scene.aggregator, "task", kill_guard)
    with pytest.raises(ZeroDivisionError):
        await killed_guard_scene.run()
    assert [killed_guard_scene.volume.task.exists(), killed_guard_scene.update.exists()] == [not holds, holds]


async def test_a_blob_that_holds_is_not_fetched_again(killed_guard_scene: Scene) -> None:
    killed_guard_scene.update.unlink()
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.fetched == 1


@pytest.mark.parametrize("name", ["tensors", "reply.json"])
async def test_a_drop_that_a_restart_finds_damaged_is_not_signed(
    name: str, killed_guard_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drops, "REPAIR_SECONDS", 0.0)
    killed_guard_scene.update.unlink()
    drop = killed_guard_scene.volume.drop / TASK
    write_drop(drop, TREE, REPLY, durable=False)
    flip(drop / name, -3)
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.uploads == {}
    assert f"{TASK}/{name}: damaged" in killed_guard_scene.aggregator.failures[TASK][1]


async def test_a_damaged_signature_is_not_judged_until_the_trainer_has_replaced_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = scene.volume.drop / "signature.json"
    document = json.loads(path.read_text())
    write_with_digest(path, document)
    flip(path, 40)

    async def replace_signature(_waiting: ChangeWait) -> None:
        write_with_digest(path, document)

    with monkeypatch.context() as waiting:
        waiting.setattr(ChangeWait, "change", replace_signature)
        assert await guard_of(scene)._announced.announcement() == Announcement(
            document["signature"], "none", None
        )
    assert f"{path}: damaged" in caplog.text


async def test_a_signature_that_stays_damaged_is_an_error_that_names_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene.volume.drop / "signature.json"
    write_with_digest(path, json.loads(path.read_text()))
    flip(path, 40)
    monkeypatch.setattr(drops, "REPAIR_SECONDS", 0.0)
    await scene.run()
    reason, message = scene.aggregator.failures[TASK]
    assert reason == "FileDamaged"
    assert message == f"{path}: damaged, it is not what the trainer wrote; start the trainer again"


async def test_a_damaged_drop_is_not_judged_until_the_trainer_has_done_the_task_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drop = scene.volume.drop / TASK
    write_drop(drop, TREE, REPLY, durable=False)
    flip(drop / "reply.json", 3)

    async def remove_drop(_waiting: ChangeWait) -> None:
        shutil.rmtree(drop, ignore_errors=True)

    with monkeypatch.context() as waiting:
        waiting.setattr(ChangeWait, "change", remove_drop)
        await DropDirectory(scene.volume.drop).check_found(TASK, scene.contract)
    assert not drop.exists()
    assert f"{TASK}/reply.json: damaged" in caplog.text
