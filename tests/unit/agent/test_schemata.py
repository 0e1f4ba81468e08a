"""What the trainer says of its data's names: announced before it has a task, and held to from then on."""

from __future__ import annotations

import hashlib
import json

import pytest

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.silo.announcement import Schema, require_declared
from fedsilo.wire import Task
from tests.unit.agent.scene import TASK, Scene, guard_of


def announce(scene: Scene, schema: object, signature: bool = True) -> None:
    """Have the trainer announce a schema beside its model's signature, or in its place."""
    path = scene.volume.drop / "signature.json"
    document = json.loads(path.read_text()) | {"schema": schema}
    if not signature:
        del document["signature"]
        failure = {"reason": "DataInvalid", "message": "class 'plane' is not a class of the job"}
        (scene.volume.drop / "failed.json").write_text(json.dumps(failure))
    path.write_text(json.dumps(document))


class Comparing:
    """What the aggregator does with announced schemata; it is put into the client's place for them.

    :ivar announced: what arrived, and whether the trainer had been given a task by then.
    """

    def __init__(self, scene: Scene, refusal: Problem | None = None) -> None:
        self.announced: list[tuple[bytes, bool]] = []
        self._scene = scene
        self._refusal = refusal
        scene.aggregator.announce_schema = self  # type: ignore[attr-defined]

    async def __call__(self, content: bytes) -> None:
        self.announced.append((content, self._scene.volume.task.exists()))
        if self._refusal is not None:
            self._scene.aggregator.ended = self._refusal.code == "schema-mismatch"
            raise self._refusal


async def test_a_schema_is_announced_before_the_trainer_has_a_task(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    comparing = Comparing(scene)
    await scene.run()
    assert comparing.announced == [(b'{"classes":["cat","dog","parrot"]}', False)]
    assert list(scene.aggregator.uploads) == [TASK]
    line = json.loads((scene.volume.audit / "log.jsonl").read_text().splitlines()[0])
    assert line["schema"] == hashlib.sha256(comparing.announced[0][0]).hexdigest()


async def test_where_schemata_differ_the_trainer_gets_no_task_and_nothing_leaves(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    comparing = Comparing(scene, Problem("schema-mismatch", "silo b: class 'prrot'"))
    await scene.run()
    assert (len(comparing.announced), scene.aggregator.uploads, scene.aggregator.failures) == (1, {}, {})
    assert scene.events() == ["signature", "schema", "not-accepted", "finished"]
    line = json.loads((scene.volume.audit / "log.jsonl").read_text().splitlines()[2])
    digest = hashlib.sha256(comparing.announced[0][0]).hexdigest()
    assert (line["code"], line["schema"], line["detail"]) == (
        "schema-mismatch",
        digest,
        "silo b: class 'prrot'",
    )


@pytest.mark.parametrize("told", [True, False])
async def test_a_trainer_with_other_names_than_the_job_s_is_announced_too(scene: Scene, told: bool) -> None:
    announce(scene, {"classes": ["plane"]}, signature=False)
    comparing = Comparing(scene, Problem("schema-mismatch", "class 'plane'") if told else None)
    await scene.run()
    assert comparing.announced == [(b'{"classes":["plane"]}', False)]
    assert scene.aggregator.uploads == {}
    failure = ("DataInvalid", "class 'plane' is not a class of the job")
    assert scene.aggregator.failures == ({} if told else {TASK: failure})


async def test_an_aggregator_of_an_earlier_release_compares_nothing(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    Comparing(scene, Problem("malformed", "POST /v1/jobs/j/schema: Not Found"))
    await scene.run()
    assert list(scene.aggregator.uploads) == [TASK]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"classes": "cat"}, "signature.json: schema: classes: 'cat' is not a list of at most 100000 names"),
        (
            {"rows": 7},
            "signature.json: schema: \"{'rows': 7}\" is not an object with any of classes, columns",
        ),
    ],
)
async def test_what_is_no_schema_is_not_announced(scene: Scene, schema: object, problem: str) -> None:
    announce(scene, schema)
    comparing = Comparing(scene)
    await scene.run()
    assert (comparing.announced, scene.aggregator.uploads) == ([], {})
    reason, message = scene.aggregator.failures[TASK]
    assert (reason, problem in message) == ("PolicyRefused", True), message


async def test_names_do_not_change_once_they_were_announced(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    Comparing(scene)
    scene.aggregator.refusals = []
    await scene.run()
    scene.volume.task.unlink()
    announce(scene, {"classes": ["dog", "cat", "parrot"]})
    guard = guard_of(scene)
    with pytest.raises(PolicyRefused, match="the trainer's data are not named as they were before round 1"):
        await guard._announced.contract(Task(**scene.honest))


def test_a_guard_derives_the_names_of_the_job_itself(scene: Scene) -> None:
    spec = scene.check.agent.spec.job.spec
    named = spec.model_copy(
        update={"data": spec.data.model_copy(update={"classes": ("cat", "dog", "parrot")})}
    )
    require_declared(named.data, Schema(classes=("cat", "dog", "parrot")))
    for schema in (None, Schema(), Schema(classes=("dog", "cat", "parrot")), Schema(classes=("cat", "dog"))):
        with pytest.raises(PolicyRefused):
            require_declared(named.data, schema)
    require_declared(spec.data, None)
