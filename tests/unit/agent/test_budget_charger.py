"""The institution's ledger is charged before an update leaves, once, and refuses what would exceed the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.budgets import StatedLedger
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import planned_mechanisms
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.transforms.plan import JobPlan
from fedsilo_agent.guard import signing
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.budget_charger import BudgetCharger
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.task_check import TaskCheck
from tests.integration.service.client import signature_of
from tests.integration.service.scripted import TREE
from tests.unit.agent.scene import TASK, Scene


class GuardKill(BaseException):
    """The guard's end at this place."""


class BudgetScene(Scene):
    """A scene whose trainer names a mechanism, and whose institution has a budget."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float = 5.0) -> None:
        super().__init__(root)
        self.ledgers: Path | None = root / "ledgers"
        budget = PrivacyBudget(dataset="digits", epsilon=epsilon, delta=1e-3)
        monkeypatch.setattr(TaskCheck, "budget", property(lambda _: budget))
        self.mechanisms: tuple[Mechanism, ...] = (Mechanism(2.0),)
        plain = signing.sign_reply
        monkeypatch.setattr(
            "fedsilo_agent.guard.answering.sign_reply",
            lambda *given: replace(plain(*given), mechanisms=self.mechanisms),
        )
        made = BudgetCharger.__init__
        monkeypatch.setattr(
            BudgetCharger, "__init__", lambda own, check, _, report: made(own, check, self.ledgers, report)
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
    scene = BudgetScene(tmp_path, monkeypatch)
    seen: list[tuple[int, int]] = []
    add = Outbox.add

    def record_add(self: Outbox, *given: Any, **facts: Any) -> None:
        seen.append((len(scene.charges()), len(scene.departures())))
        add(self, *given, **facts)

    monkeypatch.setattr(Outbox, "add", record_add)
    await scene.run()
    assert seen == [(1, 0)]
    (charge,) = scene.charges()
    assert [charge["update"]] == scene.departures()
    assert charge["mechanisms"] == [{"noiseMultiplier": 2.0, "sampling": 1.0, "times": 1}]


async def test_a_guard_that_dies_between_charge_and_departure_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:

        def kill_guard(*_: Any, **__: Any) -> None:
            raise GuardKill

        patch.setattr(Outbox, "add", kill_guard)
        with pytest.raises(GuardKill):
            await scene.run()
    assert (len(scene.charges()), scene.departures()) == (1, [])
    await scene.run()
    assert [charge["update"] for charge in scene.charges()] == scene.departures()
    assert set(scene.aggregator.uploads) == {TASK}


async def refusal_detail(scene: BudgetScene) -> str:
    await scene.run()
    assert scene.aggregator.uploads == {}
    assert scene.departures() == []
    assert list(scene.volume.outbox.iterdir()) == []
    assert set(scene.aggregator.failures) == {TASK}
    return _detail(scene)


async def test_what_would_exceed_the_budget_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch, epsilon=0.1)
    assert "would bring epsilon to" in await refusal_detail(scene)
    assert scene.aggregator.failures[TASK][0] == "BudgetExceeded"
    assert scene.charges() == []


@pytest.mark.parametrize("name", ["digits.lock", "."], ids=["lock", "directory"])
async def test_nothing_is_left_of_an_update_where_something_else_has_the_name_of_lock_or_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    assert scene.ledgers is not None
    if name == ".":
        scene.ledgers.write_text("no directory")
    else:
        (scene.ledgers / name).mkdir(parents=True)
    monkeypatch.setattr(BudgetCharger, "require_whole", lambda *_: None)  # it comes after this
    await refusal_detail(scene)
    assert scene.aggregator.failures[TASK][0] == "FileDamaged"
    assert "not what was signed" not in caplog.text, "it was removed as soon as it could not leave"


async def test_an_update_without_a_mechanism_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    scene.mechanisms = ()
    assert "the trainer names no mechanism" in await refusal_detail(scene)


async def test_a_guard_without_a_ledger_lets_nothing_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    scene.ledgers = None
    assert "this guard has no ledger to keep it in; start it with --ledgers" in await refusal_detail(scene)


async def test_what_is_spent_is_said_where_a_container_leaves_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, message = BudgetScene(tmp_path, monkeypatch), tmp_path / "termination-log"
    message.touch()
    report = ReceiptsReport(message)
    made = BudgetCharger.__init__  # of the scene
    monkeypatch.setattr(BudgetCharger, "__init__", lambda own, check, _, __: made(own, check, None, report))
    states: list[dict[str, Any]] = []
    take = ReceiptsReport.take_ledger

    def record_take(self: ReceiptsReport, ledger: dict[str, Any]) -> None:
        take(self, ledger)
        states.append(json.loads(message.read_text())["ledger"])

    monkeypatch.setattr(ReceiptsReport, "take_ledger", record_take)
    await scene.run()
    before, after = [StatedLedger.model_validate(state) for state in states]
    assert (before.dataset, before.lines, before.spent) == ("digits", 1, 0)
    assert (after.lines, after.delta, after.later) == (2, 1e-3, ())
    assert after.spent == after.of_job == epsilon_of([Mechanism(2.0)], 1e-3)


async def test_a_guard_that_starts_again_says_what_an_earlier_one_could_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        scene, message = BudgetScene(tmp_path, patch), tmp_path / "termination-log"
        await scene.run()
    message.touch()
    assert scene.ledgers is not None
    budget = PrivacyBudget(dataset="digits", epsilon=5.0, delta=1e-3)
    monkeypatch.setattr(TaskCheck, "budget", property(lambda _: budget))
    charging = BudgetCharger(scene.check, scene.ledgers, ReceiptsReport(message))
    charging.begin()
    assert json.loads(message.read_text())["ledger"]["ofJob"] > 0
    message.write_text("")
    (scene.ledgers / "digits.jsonl").write_text("{}\n")
    charging.begin()  # the guard goes on, and refuses the first update
    assert message.read_text() == ""


SAMPLES = 100
PRIVATE_SECTIONS = {
    "privacy": {"differentialPrivacy": {"unit": "example", "epsilon": 4.0, "delta": 1e-3}},
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}


class PrivateScene(BudgetScene):
    """A scene whose job has differential privacy, and whose trainer says in `reply.json` what it has done."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        signed = signing.sign_reply
        super().__init__(root, monkeypatch)
        monkeypatch.setattr("fedsilo_agent.guard.answering.sign_reply", signed)
        written = self.check.agent.spec.job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.take(FederatedJobSpec.model_validate(written | PRIVATE_SECTIONS))

    def take(self, spec: FederatedJobSpec) -> None:
        """Have the institution approve a job with this specification."""
        self.spec, self.check = spec, self.check_of(spec)
        contract = JobPlan.of(spec).contract("train", signature_of(TREE), {})
        self.honest["spec_digest"] = bytes.fromhex(spec_digest(spec))
        self.honest["contract"] = bytes.fromhex(contract.digest())

    def plan(self, samples: int = SAMPLES) -> list[dict[str, Any]]:
        planned = planned_mechanisms(registry.bind(self.spec), "train", samples)
        return [each.to_dict() for each in planned]

    def reply(self, samples: object = SAMPLES, **facts: Any) -> None:
        document = {"samples": samples, "metrics": {}, "support": {}} | facts
        (self.volume.drop / TASK / "reply.json").write_text(json.dumps(document))


async def test_what_is_charged_is_the_plan_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = PrivateScene(tmp_path, monkeypatch)
    scene.reply(mechanisms=scene.plan())
    await scene.run()
    (charge,) = scene.charges()
    assert charge["mechanisms"] == scene.plan()
    assert [charge["update"]] == scene.departures()


def _with_changes(**changes: Any) -> Any:
    return lambda plan: [plan[0] | changes]


NOT_PLANNED: dict[str, Any] = {
    "none": lambda plan: [],
    "no list": lambda plan: {"noiseMultiplier": 1.0},
    "text": lambda plan: "Gaussian",
    "twice": lambda plan: plan * 2,
    "thousands": lambda plan: [plan[0] | {"noiseMultiplier": 1 + n / 1e6} for n in range(2000)],
    "a million": lambda plan: [[]] * 10**6,
    "more noise": _with_changes(noiseMultiplier=1e5),
    "less noise": _with_changes(noiseMultiplier=0.5),
    "fewer steps": _with_changes(times=1),
    "more steps": _with_changes(times=10**9),
    "multiplicity": _with_changes(times=10**18),
    "other samples": _with_changes(sampling=0.01),
    "not sampled": _with_changes(sampling=1.0),
    **{
        f"{field} {name}": _with_changes(**{field: value})
        for field in ("noiseMultiplier", "sampling", "times")
        for name, value in {
            "not a number": float("nan"),
            "infinite": float("inf"),
            "denormal": 5e-324,
            "tiny": 1e-300,
            "huge": 1.7e308,
            "negative": -1.0,
            "zero": 0,
            "boolean": True,
            "of 4,000 digits": 10**3999,
            "a text": "1",
            "nested": [[[[[[[[]]]]]]]],
        }.items()
    },
}


@pytest.mark.parametrize("change", NOT_PLANNED.values(), ids=NOT_PLANNED)
async def test_mechanisms_that_are_not_the_plan_are_refused_before_a_lock_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    scene = PrivateScene(tmp_path, monkeypatch)
    scene.reply(mechanisms=change(scene.plan()))
    charged: list[object] = []
    monkeypatch.setattr(PrivacyLedger, "charge", lambda *given: charged.append(given))
    assert "reply: mechanism" in await refusal_detail(scene)
    assert charged == []


@pytest.mark.parametrize("samples", [0, 1, 1000, 10**12, 2**63 - 1])
async def test_samples_for_which_the_job_has_no_plan_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: int
) -> None:
    scene = PrivateScene(tmp_path, monkeypatch)
    scene.reply(samples, mechanisms=scene.plan())
    assert f"reply: samples {samples}: " in await refusal_detail(scene)


async def test_a_reply_that_counts_other_examples_than_the_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = PrivateScene(tmp_path, monkeypatch)
    departure = {"task": "r00000-train-north", "digest": "0" * 64, "round": 0, "records": SAMPLES + 1}
    AuditLog(scene.volume.audit).write("departure", **departure)
    scene.reply(mechanisms=scene.plan())
    await scene.run()
    assert scene.charges() == []
    assert "100 examples, and this silo's first update of 101" in _detail(scene)


async def test_a_job_without_differential_privacy_has_no_mechanisms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = PrivateScene(tmp_path, monkeypatch)
    plan = scene.plan()
    scene.take(scene.spec.model_copy(update={"privacy": type(scene.spec.privacy)()}))
    scene.reply(mechanisms=plan)
    assert "plan for this step in a silo of 100 samples is none" in await refusal_detail(scene)


async def test_a_ledger_that_lost_its_end_is_found_by_the_guards_own_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    await scene.run()
    (line,) = [line for line in _audit(scene) if line["event"] == "departure"]
    assert line["ledger"]["lines"] == 2
    ledger = scene.ledgers / "digits.jsonl"  # type: ignore[operator]
    before = ledger.read_bytes()
    ledger.write_bytes(before[: before.index(b"\n") + 1])
    record = AuditLog(scene.volume.audit).record
    with pytest.raises(AuditBroken, match=r"digits\.jsonl: has lost its end"):
        BudgetCharger(scene.check, None, None).require_whole(record.ledger)
    ledger.unlink()
    with pytest.raises(AuditBroken, match="has lost its end"):
        BudgetCharger(scene.check, None, None).require_whole(record.ledger)
    ledger.write_bytes(before)
    BudgetCharger(scene.check, None, None).require_whole(record.ledger)


async def test_a_guard_that_starts_says_in_its_log_that_the_ledger_lost_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    await scene.run()
    charging, known = BudgetCharger(scene.check, None, None), AuditLog(scene.volume.audit).record.ledger
    charging.begin(known)
    assert caplog.text == ""
    (scene.ledgers / "digits.jsonl").unlink()  # type: ignore[operator]
    charging.begin(known)
    assert "digits.jsonl: has lost its end" in caplog.text


async def test_a_trainer_is_not_asked_while_the_ledger_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    assert scene.ledgers is not None
    head = {"dataset": "digits", "lines": 7, "hash": "ab" * 32}
    departure = {"task": "r00000-train-north", "digest": "0" * 64, "round": 0, "ledger": head}
    AuditLog(scene.volume.audit).write("departure", **departure)
    await scene.run()
    assert scene.aggregator.failures[TASK][0] == "AuditBroken"
    assert "has had 7 lines" in str(_audit(scene))
    assert not scene.blob.exists(), "the task never came to the trainer"


async def test_another_job_may_charge_the_ledger_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = BudgetScene(tmp_path, monkeypatch)
    await scene.run()
    assert scene.ledgers is not None
    ledger = PrivacyLedger(scene.ledgers, "digits")
    ledger.charge(Charge("other", "uid-other", "1" * 64, (Mechanism(9.0),)), scene.check.clock())
    ledger.set_budget(Budget(7.0, 1e-3), scene.check.clock())
    BudgetCharger(scene.check, None, None).require_whole(AuditLog(scene.volume.audit).record.ledger)


def _audit(scene: Scene) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (scene.volume.audit / "log.jsonl").read_text().splitlines()]


def _detail(scene: Scene) -> str:
    """What the audit log says of the one refusal: of a dataset with a budget the aggregator is told less."""
    (detail,) = [line["detail"] for line in _audit(scene) if "detail" in line]
    return str(detail)
