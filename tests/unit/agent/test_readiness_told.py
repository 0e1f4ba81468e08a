"""What a guard tells of its silo's data before round 1: what the silo's policy permits, on record before it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import Problem
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.schema_handshake import SchemaHandshake
from tests.unit.agent.scene import TASK, Scene

SMALL_CLASS_FINDING = {"code": "ClassSmall", "places": [0, 2], "count": 2}
CONSTANT = {"code": "FeatureConstant", "places": [1], "count": 1}
COPIES = {"code": "Duplicates", "count": 9}
FINDINGS = [SMALL_CLASS_FINDING, CONSTANT, COPIES]
SCHEMA = {"classes": ["cat", "dog", "owl"]}
UNREADABLE_FINDINGS = [{"code": "Unreadable", "message": "item 3 is torn; mend it"}]


class ReadinessRecorder:
    """What the aggregator is told, and whether the trainer had been given a task by then."""

    def __init__(self, scene: Scene, refusal: Problem | None = None) -> None:
        self.statements: list[tuple[Any, bool]] = []
        self._scene = scene
        self._refusal = refusal
        scene.aggregator.announce_readiness = self  # type: ignore[attr-defined]

    async def __call__(self, content: bytes) -> None:
        self.statements.append((json.loads(content), self._scene.volume.task.exists()))
        if self._refusal is not None:
            self._scene.aggregator.ended = True
            raise self._refusal


def scene_of(root: Path, policy: Any = None, check: str | None = "refuse", **announced: Any) -> Scene:
    scene = Scene(root, {"classes": 3, "inputShape": [4], "check": check}, policy)
    path = scene.volume.drop / "signature.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | announced))
    return scene


def lines(scene: Scene) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (scene.volume.audit / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["model", "class_counts", "feature_statistics"], [SMALL_CLASS_FINDING, CONSTANT, COPIES]),
        (["model", "class_counts"], [SMALL_CLASS_FINDING, {"code": "FeatureConstant"}, COPIES]),
        (["model", "feature_statistics"], [CONSTANT, {"code": "Duplicates"}]),
        (["model"], [{"code": "FeatureConstant"}, {"code": "Duplicates"}]),
    ],
)
async def test_the_silo_s_policy_decides_what_leaves(tmp_path: Path, kinds: list[str], told: Any) -> None:
    scene = scene_of(tmp_path, {"payloadKinds": kinds}, findings=FINDINGS, schema=SCHEMA)
    aggregator = ReadinessRecorder(scene)
    await scene.run()
    assert aggregator.statements == [({"findings": told, "schema": SCHEMA}, False)]
    assert list(scene.aggregator.uploads) == [TASK]
    readiness = next(line for line in lines(scene) if line["event"] == "readiness")
    assert readiness["findings"] == told
    assert scene.events()[:2] == ["signature", "readiness"]


async def test_it_is_told_once_and_again_by_a_guard_that_was_restarted(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    aggregator: Any = ReadinessRecorder(scene)
    for told in (1, 2):
        agreement = SchemaHandshake(scene.check, scene.aggregator, AuditLog(scene.volume.audit))  # type: ignore[arg-type]
        await agreement.wait(None, FINDINGS)
        await agreement.wait(None, FINDINGS)
        assert len(aggregator.statements) == told
    assert scene.events() == ["readiness"]


async def test_data_that_cannot_be_read_are_told_beside_the_others_faults(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, findings=UNREADABLE_FINDINGS, signature=None)
    (scene.volume.drop / "failed.json").write_text(json.dumps({"reason": "DataInvalid", "message": "torn"}))
    aggregator = ReadinessRecorder(scene, Problem("not-ready", "silo a: torn"))
    await scene.run()
    assert aggregator.statements == [({"findings": UNREADABLE_FINDINGS}, False)]
    assert (scene.aggregator.uploads, scene.aggregator.failures) == ({}, {})
    refused = next(line for line in lines(scene) if line["event"] == "not-accepted")
    assert (refused["code"], refused["detail"]) == ("not-ready", "silo a: torn")


async def test_where_the_job_goes_on_the_silo_reports_its_failure(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, check="report", findings=UNREADABLE_FINDINGS, signature=None)
    (scene.volume.drop / "failed.json").write_text(json.dumps({"reason": "DataInvalid", "message": "torn"}))
    ReadinessRecorder(scene)
    await scene.run()
    assert scene.aggregator.failures == {TASK: ("DataInvalid", "torn")}


async def test_a_trainer_that_is_started_again_is_waited_for(tmp_path: Path) -> None:
    """The trainer has removed its predecessor's failure, and has not read the data again so far."""
    scene = scene_of(tmp_path, check="report", findings=[])
    path = scene.volume.drop / "signature.json"
    mended = path.read_text()
    path.write_text(json.dumps(json.loads(mended) | {"findings": UNREADABLE_FINDINGS, "signature": None}))
    aggregator = ReadinessRecorder(scene)

    async def mend_after_announcing(content: bytes) -> None:
        await aggregator(content)
        path.write_text(mended)

    scene.aggregator.announce_readiness = mend_after_announcing  # type: ignore[attr-defined]
    await scene.run()
    assert aggregator.statements == [({"findings": UNREADABLE_FINDINGS}, False), ({"findings": []}, False)]
    assert (list(scene.aggregator.uploads), scene.aggregator.failures) == ([TASK], {})


@pytest.mark.parametrize(
    "findings",
    [None, [{"code": "RangeUnusual", "value": "patient 17"}], [{"code": "ClassSmall", "places": [7]}]],
)
async def test_what_are_no_findings_leave_nothing(tmp_path: Path, findings: Any) -> None:
    scene = scene_of(tmp_path, findings=findings)
    aggregator = ReadinessRecorder(scene)
    await scene.run()
    assert (aggregator.statements, scene.aggregator.uploads) == ([], {})
    reason, message = scene.aggregator.failures[TASK]
    assert (reason, "signature.json: findings" in message) == ("PolicyRefused", True)


async def test_a_job_that_does_not_ask_is_told_nothing(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, check=None, findings=FINDINGS)
    aggregator = ReadinessRecorder(scene)
    await scene.run()
    assert aggregator.statements == []
    assert list(scene.aggregator.uploads) == [TASK]
