"""The institution's ledger is charged before an update leaves, once, and refuses what would exceed the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.privacy.mechanism import Mechanism
from fedsilo_agent.guard import inspection
from fedsilo_agent.guard.charging import Charging
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.task_check import TaskCheck
from tests.unit.agent.scene import TASK, Scene


class Killed(BaseException):
    """The guard's end at this place."""


class Budgeted(Scene):
    """A scene whose trainer names a mechanism, and whose institution has a budget."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float = 5.0) -> None:
        super().__init__(root)
        self.ledgers: Path | None = root / "ledgers"
        budget = PrivacyBudget(dataset="digits", epsilon=epsilon, delta=1e-3)
        monkeypatch.setattr(TaskCheck, "budget", property(lambda _: budget))
        self.mechanisms: tuple[Mechanism, ...] = (Mechanism(2.0),)
        plain = inspection.sign_reply
        monkeypatch.setattr(
            "fedsilo_agent.guard.loop.sign_reply",
            lambda *given: replace(plain(*given), mechanisms=self.mechanisms),
        )
        made = Charging.__init__
        monkeypatch.setattr(Charging, "__init__", lambda own, check, _: made(own, check, self.ledgers))

    def charges(self) -> list[dict[str, Any]]:
        assert self.ledgers is not None
        path = self.ledgers / "digits.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["event"] == "charge"]

    def departures(self) -> list[str]:
        path = self.volume.audit / "log.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["digest"] for line in lines if line["event"] == "departure"]


async def test_a_departure_has_its_charge_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Budgeted(tmp_path, monkeypatch)
    seen: list[tuple[int, int]] = []
    add = Outbox.add

    def noted(self: Outbox, *given: Any, **facts: Any) -> None:
        seen.append((len(scene.charges()), len(scene.departures())))
        add(self, *given, **facts)

    monkeypatch.setattr(Outbox, "add", noted)
    await scene.run()
    assert seen == [(1, 0)]
    (charge,) = scene.charges()
    assert [charge["update"]] == scene.departures()
    assert charge["mechanisms"] == [{"noiseMultiplier": 2.0, "sampling": 1.0, "times": 1}]


async def test_a_guard_that_dies_between_charge_and_departure_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Budgeted(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:

        def killed(*_: Any, **__: Any) -> None:
            raise Killed

        patch.setattr(Outbox, "add", killed)
        with pytest.raises(Killed):
            await scene.run()
    assert (len(scene.charges()), scene.departures()) == (1, [])
    await scene.run()
    assert [charge["update"] for charge in scene.charges()] == scene.departures()
    assert set(scene.aggregator.uploads) == {TASK}


async def refused(scene: Budgeted) -> str:
    await scene.run()
    assert scene.aggregator.uploads == {}
    assert scene.departures() == []
    assert list(scene.volume.outbox.iterdir()) == []
    return scene.aggregator.failures[TASK][1]


async def test_what_would_exceed_the_budget_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Budgeted(tmp_path, monkeypatch, epsilon=0.1)
    assert "would bring epsilon to" in await refused(scene)
    assert scene.aggregator.failures[TASK][0] == "BudgetExceeded"
    assert scene.charges() == []


async def test_an_update_without_a_mechanism_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Budgeted(tmp_path, monkeypatch)
    scene.mechanisms = ()
    assert "the trainer names no mechanism" in await refused(scene)


async def test_a_guard_without_a_ledger_lets_nothing_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Budgeted(tmp_path, monkeypatch)
    scene.ledgers = None
    assert "this guard has no ledger to keep it in; start it with --ledgers" in await refused(scene)
