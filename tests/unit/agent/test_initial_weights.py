"""A silo is handed the same initial weights, and with them the same frozen tensors, as long as its job runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.parameters import InitialWeightsSpec
from fedsilo.errors import Problem
from fedsilo.wire import BlobLink, Task, seal_task
from fedsilo_agent.guard.audit import AuditLog
from tests.unit.agent.scene import TASK, Scene

FIRST_DIGEST, OTHER_DIGEST = "a" * 64, "b" * 64
NEXT_TASK = "r00002-train-north"


def hand_out(scene: Scene, *digests: str) -> None:
    """Have the scene's task hand out these initial weights, besides the model."""
    model = scene.honest["blobs"][0]
    scene.honest["blobs"] = (model, *(BlobLink("initialWeights", digest, 10) for digest in digests))


@pytest.fixture
async def answered_scene(tmp_path: Path) -> Scene:
    """A silo that has answered round 1 of a job that names no file, and is asked for round 2 after a restart."""
    scene = Scene(tmp_path)
    hand_out(scene, FIRST_DIGEST)
    await scene.run()
    assert scene.check.agent.spec.job.spec.model.initial_weights is None
    scene.honest |= {"task": NEXT_TASK, "round": 2}
    scene.drop(NEXT_TASK)
    return scene


async def test_the_audit_log_says_which_initial_weights_were_handed_out(answered_scene: Scene) -> None:
    lines = (answered_scene.volume.audit / "log.jsonl").read_text().splitlines()
    departure = next(line for line in map(json.loads, lines) if line["event"] == "departure")
    assert departure["initialWeights"] == FIRST_DIGEST
    assert AuditLog(answered_scene.volume.audit).record.initial_weights == FIRST_DIGEST


@pytest.mark.parametrize(
    ("digests", "found"), [([OTHER_DIGEST], "initial weights bbbbbbbbbbbb"), ([], "no initial weights")]
)
async def test_a_later_task_with_other_initial_weights_is_refused(
    digests: list[str], found: str, answered_scene: Scene
) -> None:
    hand_out(answered_scene, *digests)
    await answered_scene.run()
    message = f"task {NEXT_TASK} hands out {found}, those of this silo's first update are aaaaaaaaaaaa; nothing is sent"
    assert list(answered_scene.aggregator.uploads) == [TASK]
    assert answered_scene.aggregator.failures == {NEXT_TASK: ("PolicyRefused", message)}
    line = json.loads((answered_scene.volume.audit / "log.jsonl").read_text().splitlines()[-2])
    assert (line["event"], line["task"], line["detail"]) == ("refused", NEXT_TASK, message)
    assert not (answered_scene.volume.blobs / OTHER_DIGEST).exists(), "it never reaches the trainer"


async def test_refused_initial_weights_do_not_become_the_first_ones(answered_scene: Scene) -> None:
    hand_out(answered_scene, OTHER_DIGEST)
    await answered_scene.run()
    answered_scene.honest |= {"task": "r00003-train-north", "round": 3}
    answered_scene.drop("r00003-train-north")
    hand_out(answered_scene, FIRST_DIGEST)
    await answered_scene.run()
    assert list(answered_scene.aggregator.uploads) == [TASK, "r00003-train-north"]


async def test_a_job_without_initial_weights_has_none_on_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.run()
    assert AuditLog(scene.volume.audit).record.initial_weights is None
    assert "initialWeights" not in (scene.volume.audit / "log.jsonl").read_text()


def test_a_task_that_hands_out_other_initial_weights_than_the_job_is_refused(scene: Scene) -> None:
    """The institution approved a job with this digest."""
    job = scene.check.agent.spec.job
    given = InitialWeightsSpec(sha256="a" * 64, file="start.safetensors")
    spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"initial_weights": given})})
    check = scene.check_of(spec)
    honest = Task(**scene.honest | {"spec_digest": bytes.fromhex(spec_digest(spec))})

    def open_task(digest: str) -> Task:
        blobs = (*honest.blobs, BlobLink("initialWeights", digest, 10))
        return check.open(seal_task(replace(honest, blobs=blobs), scene.aggregator.key))

    assert open_task("a" * 64).blobs[-1].digest == "a" * 64
    with pytest.raises(
        Problem, match="task-mismatch: the task hands out initial weights bbbbbbbbbbbb, the job's are"
    ):
        open_task("b" * 64)
