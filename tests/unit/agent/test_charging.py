"""The institution's ledger is charged before an update leaves, once, and refuses what would exceed the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.budgets import StatedLedger
from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo_agent.guard import inspection
from fedsilo_agent.guard.charging import Charging
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.report import ReceiptsReport
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
        monkeypatch.setattr(
            Charging, "__init__", lambda own, check, _, report: made(own, check, self.ledgers, report)
        )

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


async def test_what_is_spent_is_said_where_a_container_leaves_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, message = Budgeted(tmp_path, monkeypatch), tmp_path / "termination-log"
    message.touch()
    report = ReceiptsReport(message)
    made = Charging.__init__  # of the scene
    monkeypatch.setattr(Charging, "__init__", lambda own, check, _, __: made(own, check, None, report))
    states: list[dict[str, Any]] = []
    take = ReceiptsReport.take_ledger

    def noted(self: ReceiptsReport, ledger: dict[str, Any]) -> None:
        take(self, ledger)
        states.append(json.loads(message.read_text())["ledger"])

    monkeypatch.setattr(ReceiptsReport, "take_ledger", noted)
    await scene.run()
    before, after = [StatedLedger.model_validate(state) for state in states]
    assert (before.dataset, before.lines, before.spent) == ("digits", 1, 0)
    assert (after.lines, after.delta, after.later) == (2, 1e-3, ())
    assert after.spent == after.of_job == epsilon_of([Mechanism(2.0)], 1e-3)


async def test_a_guard_that_starts_again_says_what_an_earlier_one_could_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        scene, message = Budgeted(tmp_path, patch), tmp_path / "termination-log"
        await scene.run()
    message.touch()
    assert scene.ledgers is not None
    budget = PrivacyBudget(dataset="digits", epsilon=5.0, delta=1e-3)
    monkeypatch.setattr(TaskCheck, "budget", property(lambda _: budget))
    charging = Charging(scene.check, scene.ledgers, ReceiptsReport(message))
    charging.state()
    assert json.loads(message.read_text())["ledger"]["ofJob"] > 0
    message.write_text("")
    (scene.ledgers / "digits.jsonl").write_text("{}\n")
    charging.state()  # the guard goes on, and refuses the first update
    assert message.read_text() == ""
