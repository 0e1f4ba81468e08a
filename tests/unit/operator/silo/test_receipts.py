"""What has left a silo, in its agent's status: as its guard said last, and never less than it said before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedsilo.api.agent import SiloAgentStatus
from fedsilo_operator.workloads.agent import GUARD
from tests.unit.operator.silo.harness import World, ended_status, started_world, suspended

LATEST_UPDATE = {
    "round": 3,
    "phase": "train",
    "kinds": [{"kind": "model", "blocks": 4, "bytes": 900}],
    "bytes": 1000,
    "digest": "d" * 64,
    "outcome": "accepted",
}


def summary(lines: int) -> dict[str, Any]:
    return {
        "auditLines": lines,
        "auditHash": f"{lines:064x}",
        "updates": 3,
        "bytes": 3000,
        "latest": [LATEST_UPDATE],
    }


def end_pod(scene: World, code: int, message: str) -> None:
    """The guard's pod ends, before its Job knows."""
    job = scene.job(GUARD)
    assert job is not None
    (pod,) = scene.pods_of(job)
    pod["status"] = ended_status(code, message)


def stated_receipts(scene: World) -> Any:
    return scene.agent["status"].get("receipts")


@pytest.mark.parametrize(
    ("code", "more"), [(0, {}), (137, {}), (1, {"reason": "StorageFailed", "message": "x"})]
)
def test_what_the_guard_left_stands_in_the_status(code: int, more: dict[str, str]) -> None:
    scene = started_world()
    assert stated_receipts(scene) is None
    end_pod(scene, code, json.dumps(more | {"receipts": summary(9)}))
    scene.reconcile()
    assert stated_receipts(scene) == summary(9)
    SiloAgentStatus.model_validate(scene.agent["status"])
    assert scene.plan().status is None, "it is written once"


def test_a_guard_that_runs_anew_takes_nothing_back() -> None:
    scene = started_world()
    end_pod(scene, 137, json.dumps({"receipts": summary(9)}))
    scene.reconcile()
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, GUARD)
    scene.suspend(False)
    scene.reconcile()
    scene.run_all()
    scene.reconcile()
    assert stated_receipts(scene) == summary(9)
    end_pod(scene, 0, json.dumps({"receipts": summary(4)}))
    scene.reconcile()
    assert stated_receipts(scene) == summary(9)


def test_the_last_word_comes_after_the_agents_end_too() -> None:
    scene = started_world()
    scene.end("trainer", "Failed", reason="PodFailurePolicy", message="exit code 3 matched")
    scene.reconcile()
    assert (scene.phase, stated_receipts(scene)) == ("Failed", None)
    end_pod(scene, 0, json.dumps({"receipts": summary(9)}))
    scene.reconcile()
    assert (scene.phase, stated_receipts(scene)) == ("Failed", summary(9))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no JSON",
        "[]",
        "[" * 4096,
        '{"receipts": 7}',
        json.dumps({"receipts": summary(9) | {"updates": -1}}),
        json.dumps({"receipts": summary(9) | {"auditHash": "<b>"}}),
        json.dumps({"receipts": summary(9) | {"latest": [LATEST_UPDATE] * 17}}),
    ],
)
def test_anything_else_is_no_receipt(message: str) -> None:
    scene = started_world()
    end_pod(scene, 0, message)
    scene.reconcile()
    assert stated_receipts(scene) is None
