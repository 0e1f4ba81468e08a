"""What a guard lets go of a reply where the trainer adds the noise: no figures, and what has no noise as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.wire import Tree, open_update
from tests.integration.service.scripted import TREE
from tests.unit.agent.scene import TASK, Scene
from tests.unit.agent.test_schemata import Comparing, announce

BUFFERED_TREE: Tree = TREE | {
    "encoder.seen": np.array(3, np.int64),
    "encoder.active": np.ones(6, np.bool_),
}
PRIVATE_SECTIONS: dict[str, Any] = {
    "privacy": {"differentialPrivacy": {"unit": "example", "epsilon": 3, "delta": 1e-3}},
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}


@pytest.fixture
def private_scene(tmp_path: Path) -> Scene:
    """A silo of a job that protects examples."""
    return Scene(tmp_path, tree=BUFFERED_TREE, **PRIVATE_SECTIONS)


def failures(scene: Scene) -> str:
    """What the audit log has of them: no text of them leaves."""
    lines = map(json.loads, (scene.volume.audit / "log.jsonl").read_text().splitlines())
    return "\n".join(
        f"{line.get('reason', 'PolicyRefused')}: {line['detail']}"
        for line in lines
        if line["event"] in ("refused", "failed")
    )


async def test_figures_do_not_leave_whatever_the_trainer_states(private_scene: Scene, tmp_path: Path) -> None:
    private_scene.drop(TASK, metrics={"loss": 0.25})
    await private_scene.run()
    (path,) = [tmp_path / "update"]
    path.write_bytes(private_scene.aggregator.uploads[TASK][0])
    with open_update(path) as update:
        assert (update.header.samples, update.header.metrics) == (0, {})
    audit = [json.loads(line) for line in (private_scene.volume.audit / "log.jsonl").read_text().splitlines()]
    (left,) = [line for line in audit if line["event"] == "departure"]
    assert (left["samples"], left["metrics"]) == (0, {})


@pytest.mark.parametrize(
    ("name", "value"), [("encoder.seen", np.array(4)), ("encoder.active", np.zeros(6, np.bool_))]
)
async def test_integers_and_booleans_are_as_the_task_handed_them_out(
    private_scene: Scene, name: str, value: np.ndarray
) -> None:
    private_scene.drop(TASK, {**BUFFERED_TREE, name: value})
    await private_scene.run()
    assert private_scene.aggregator.uploads == {}
    assert f"PolicyRefused: block {name}: is not as the task handed it out" in failures(private_scene)
    assert "departure" not in private_scene.events()


async def test_a_model_in_the_inbox_that_was_changed_is_no_measure(
    private_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever may write there would let any counter out."""

    async def write_damaged(link: Any, path: Path) -> None:
        content = bytearray(private_scene.aggregator.blob)
        content[-1] ^= 1
        path.write_bytes(content)

    monkeypatch.setattr(private_scene.aggregator, "download", write_damaged)
    await private_scene.run()
    assert private_scene.aggregator.uploads == {}
    assert "damaged, it is not the model of task" in failures(private_scene)


async def test_names_and_ranges_that_are_of_examples_are_not_announced(private_scene: Scene) -> None:
    announce(private_scene, {"classes": ["ill", "rare", "well"], "valueRange": "0 to 1", "channels": 4})
    comparing = Comparing(private_scene)
    await private_scene.run()
    assert [content for content, _ in comparing.announced] == [b'{"channels":4}']


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"evaluation": {"testDataset": None}}, "evaluation.testDataset"),
        ({"data": {"classes": 3, "inputShape": [4], "check": "report"}}, "data.check"),
        ({"method": {"name": "moon"}}, "has no mechanism for model"),
        ({"aggregation": {"weights": "samples"}}, "aggregation.weights"),
    ],
    ids=["scores", "findings", "method", "weights"],
)
async def test_nothing_is_said_in_a_job_that_asks_for_more_than_is_covered(
    tmp_path: Path, sections: dict[str, Any], field: str
) -> None:
    """Whatever validation has let pass, and before anything is announced."""
    scene = Scene(tmp_path, tree=BUFFERED_TREE, **PRIVATE_SECTIONS | sections)
    announce(scene, {"channels": 1})
    comparing = Comparing(scene)
    scene.aggregator.announce_readiness = comparing  # type: ignore[attr-defined]
    await scene.run()
    assert (scene.aggregator.uploads, comparing.announced) == ({}, [])
    assert "ManifestInvalid: " in failures(scene)
    assert field in failures(scene)
