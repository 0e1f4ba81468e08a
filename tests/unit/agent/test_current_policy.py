"""A policy that changes while a job runs: what becomes stricter holds at once, and nothing becomes looser."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import PolicyRefused
from fedsilo_agent.guard.current_policy import PresentPolicy
from fedsilo_agent.guard.dropped_reply import require_undamaged
from tests.unit.agent.scene import TASK, Scene

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class PolicyScene(Scene):
    """A scene whose guard reads the policy as it is now."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.file = self.volume.guard / "silo.json"
        present = PresentPolicy(self.file, self.check.silo)
        self.check = replace(self.check, present=present, clock=lambda: NOW)

    def rule(self, **rules: Any) -> None:
        """The institution edits its policy."""
        silo = json.loads(self.file.read_text())
        silo["spec"]["policy"] |= rules
        self.file.write_text(json.dumps(silo))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.volume.audit / "log.jsonl").read_text().splitlines()]

    async def answer(self, round: int) -> None:
        """A round and the end of the guard, which a restart follows."""
        name = f"r{round:05}-train-north"
        self.honest |= {"task": name, "round": round}
        if not (self.volume.drop / name).exists():
            self.drop(name)
        await self.run()

    def assert_refused(self, round: int, words: str, told: str | None = None) -> None:
        name = f"r{round:05}-train-north"
        assert name not in self.aggregator.uploads
        reason, message = self.aggregator.failures[name]
        assert reason == "PolicyRefused"
        (refused,) = [line for line in self.lines() if line["event"] == "refused"]
        assert (refused["task"], refused["told"]) == (name, message)
        assert words in refused["detail"]
        assert told is None or told in message
        assert list(self.volume.outbox.iterdir()) == []


@pytest.fixture
def scene(tmp_path: Path) -> PolicyScene:
    return PolicyScene(tmp_path)


STRICTER_POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "the method": ({"methods": ["creff"]}, "silo north: policy.methods allows creff, not fedavg"),
    "the kind": ({"payloadKinds": ["class_counts"]}, "policy.payloadKinds does not allow model"),
    "so many bytes": ({"maxBytesPerRound": "10"}, "policy.maxBytesPerRound is 10"),
    "so many bytes in all": ({"maxBytesPerJob": "200"}, "policy.maxBytesPerJob is 200, 168 bytes have left"),
    "another round": ({"maxAnsweredRounds": 1}, "policy.maxAnsweredRounds is 1"),
    "so few silos": ({"minSilos": 3}, "policy.minSilos is 3"),
    "that day": (
        {"notAfter": "2026-03-01T11:59:59Z"},
        "policy.notAfter is 2026-03-01T11:59:59Z, which is over",
    ),
    "it yet": ({"notBefore": "2026-03-01T12:00:01Z"}, "policy.notBefore is 2026-03-01T12:00:01Z"),
}


@pytest.mark.parametrize("rule", STRICTER_POLICIES)
async def test_the_next_departure_stays_where_the_policy_does_not_permit_any_more(
    rule: str, scene: PolicyScene
) -> None:
    rules, words = STRICTER_POLICIES[rule]
    await scene.answer(1)
    scene.rule(**rules)
    await scene.answer(2)
    scene.assert_refused(2, words)
    assert list(scene.aggregator.uploads) == [TASK]


def between_task_and_signature(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Have the change happen when the trainer has answered and nothing is signed yet."""

    def change_before_check(*arguments: Any) -> None:
        change()
        require_undamaged(*arguments)

    monkeypatch.setattr("fedsilo_agent.guard.drops.require_undamaged", change_before_check)


async def test_the_policy_is_read_again_right_before_the_signature(
    scene: PolicyScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    between_task_and_signature(monkeypatch, lambda: scene.rule(methods=["creff"]))
    await scene.answer(1)
    scene.assert_refused(1, "policy.methods allows creff")
    assert TASK in scene.volume.task.read_text() or scene.aggregator.fetched == 1, (
        "the trainer was asked before"
    )


async def test_a_change_that_is_undone_lets_the_job_go_on(scene: PolicyScene) -> None:
    scene.rule(methods=["creff"])
    await scene.answer(1)
    scene.assert_refused(1, "policy.methods")
    scene.rule(methods=None)
    await scene.answer(2)
    assert list(scene.aggregator.uploads) == ["r00002-train-north"]


async def test_a_policy_that_becomes_looser_changes_nothing_for_a_job_that_runs(scene: PolicyScene) -> None:
    policy = scene.check.silo.spec.policy.model_copy(update={"methods": ("creff",)})
    began = scene.check.silo.spec.model_copy(update={"policy": policy})
    scene.check = replace(scene.check, silo=scene.check.silo.model_copy(update={"spec": began}))
    scene.rule(methods=["fedavg"])
    await scene.answer(1)
    scene.assert_refused(1, "policy.methods allows creff, not fedavg")


def test_limits_of_a_reply_are_the_stricter_of_both(scene: PolicyScene) -> None:
    scene.rule(minSamplesPerClass=50, personalAccuracy="PerSilo")
    assert (scene.check.limits.min_samples_per_class, scene.check.limits.personal_accuracy) == (50, "Mean")
    scene.rule(minSamplesPerClass=1, personalAccuracy="Withheld")
    assert (scene.check.limits.min_samples_per_class, scene.check.limits.personal_accuracy) == (5, "Withheld")


BROKEN_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "the silo's policy cannot be read"),
    "half a file": (lambda path: path.write_text(path.read_text()[:40]), "the silo's policy cannot be read"),
    "a wrong value": (
        lambda path: path.write_text(path.read_text().replace('"policy": {', '"policy": {"minSilos": 0, ')),
        "spec.policy.minSilos: 0: is too small",
    ),
    "another silo's": (
        lambda path: path.write_text(path.read_text().replace('"north"', '"south"')),
        "is of silo silo-north/south, not of silo-north/north",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_FILES)
async def test_a_policy_that_cannot_be_read_permits_nothing(fault: str, scene: PolicyScene) -> None:
    damage, words = BROKEN_FILES[fault]
    damage(scene.file)
    await scene.answer(1)
    scene.assert_refused(1, words)
    with pytest.raises(PolicyRefused, match="nothing leaves until it is there"):
        scene.check.present and scene.check.present.read()


@pytest.mark.parametrize("limit", [{"maxBytesPerJob": "336"}, {"maxAnsweredRounds": 2}])
async def test_what_has_left_is_counted_across_restarts_and_each_update_once(
    limit: dict[str, Any], scene: PolicyScene
) -> None:
    scene.rule(**limit)
    for round in (1, 2, 2):
        scene.aggregator.uploads.clear()
        await scene.answer(round)
        assert list(scene.aggregator.uploads) == [f"r{round:05}-train-north"]
    await scene.answer(3)
    scene.assert_refused(3, f"policy.{next(iter(limit))} is ")
