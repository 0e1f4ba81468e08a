"""A guard that is started again, and an aggregator that refuses: no honest update is lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.errors import Problem
from fedsilo.files.json_files import read_json
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from tests.unit.agent.scene import TASK, Scene


async def test_a_restarted_guard_sends_what_was_signed_and_fetches_nothing(killed_guard_scene: Scene) -> None:
    signed = killed_guard_scene.update.read_bytes()
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.uploads[TASK] == [signed]
    assert killed_guard_scene.aggregator.fetched == 1
    assert killed_guard_scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_a_final_refusal_is_known_to_both_sides(scene: Scene) -> None:
    scene.aggregator.refusals = [Problem("not-finite", "block encoder.weight has a NaN")]
    await scene.run()
    reason, message = scene.aggregator.failures[TASK]
    assert (reason, message) == ("ProtocolProblem", "not-finite: block encoder.weight has a NaN")
    assert scene.events() == ["signature", "departure", "not-accepted", "finished"]
    assert not scene.update.exists()


async def test_an_update_that_is_too_late_is_no_failure(killed_guard_scene: Scene) -> None:
    killed_guard_scene.aggregator.refusals = [Problem("round-closed", "too late")]
    killed_guard_scene.honest |= {"task": "r00002-train-north", "round": 2}
    killed_guard_scene.drop("r00002-train-north")
    await killed_guard_scene.run()
    assert killed_guard_scene.aggregator.failures == {}
    events = ["signature", "departure", "not-accepted", "departure", "acknowledged", "finished"]
    assert killed_guard_scene.events() == events


async def test_a_blob_that_cannot_be_had_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def download(*_: object) -> None:
        raise Problem("digest-mismatch", "blob model: received 1, the task names 2")

    monkeypatch.setattr(scene.aggregator, "download", download)
    await scene.run()
    assert scene.aggregator.failures[TASK][0] == "ProtocolProblem"
    assert scene.events() == ["signature", "not-accepted", "finished"]


async def test_a_task_that_is_given_again_and_again_is_answered_all_the_same(scene: Scene) -> None:
    scene.aggregator.repeats = 8
    await scene.run()
    assert set(scene.aggregator.uploads) == {TASK}
    assert len(set(scene.aggregator.uploads[TASK])) == 1
    assert scene.events()[-2:] == ["acknowledged", "finished"]
    assert scene.aggregator.fetched == 1


async def test_the_trainer_learns_what_was_acknowledged_from_the_audit_log(killed_guard_scene: Scene) -> None:
    await killed_guard_scene.run()
    document = read_json(killed_guard_scene.volume.task)
    assert document["acknowledged"] == TASK
    names = {path.name for path in killed_guard_scene.volume.guard.iterdir()}
    assert names == {"agent.json", "silo.json", "key.pem", "outbox"}, (
        "no second record that could say otherwise"
    )


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_a_log_that_has_lost_lines_since_the_last_task_is_no_log(scene: Scene, left: int) -> None:
    """Its chain holds, and a guard that went on from it would answer from another private state."""
    await scene.run()
    log = scene.volume.audit / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) > 3
    log.write_text("".join(lines[:left]))
    client: Any = scene.aggregator
    with pytest.raises(
        AuditBroken, match=f"log.jsonl: has {left} lines, and had .*; restore it from a backup"
    ):
        Guard(GuardedJob(scene.check, scene.volume, scene.key, client))
