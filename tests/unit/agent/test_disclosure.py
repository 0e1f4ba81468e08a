"""What leaves of a failure: few reports of an exchange, and no words of a trainer where values are protected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.schema import Schema
from fedsilo.errors import Problem
from fedsilo.local.outcome import clear_outcome, is_dismissed
from tests.unit.agent.scene import TASK, Scene

SECRET = "patient 17 is called Jane Doe"
FEW_EXAMPLES = 4
REPLY = '{"samples": 10, "metrics": {}, "support": {}}'
PRIVACY_SPEC = {"epsilon": 3.0, "delta": 0.001}

SCORED_SECTIONS: dict[str, Any] = {
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}
"""Sections of a job that the aggregator scores: no score of a silo's has noise."""

PROTECTED_SECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "secure sums": (
        {
            "aggregation": {"secure": True},
            "silos": {
                "refs": [{"namespace": f"silo-{name}", "name": name} for name in ("north", "south", "west")]
            },
            "participation": {"minSilos": 3},
        },
        {},
    ),
    "the privacy of a silo": (
        {
            "privacy": {"differentialPrivacy": {"unit": "silo", "maxUpdateNorm": 1.0, **PRIVACY_SPEC}},
            "aggregation": {"weights": "uniform"},
            **SCORED_SECTIONS,
        },
        {},
    ),
    "the privacy of an example": (
        {"privacy": {"differentialPrivacy": {"unit": "example", **PRIVACY_SPEC}}, **SCORED_SECTIONS},
        {},
    ),
    "a budget": ({}, {"privacyBudget": [{"dataset": "digits", "epsilon": 5.0, "delta": 0.001}]}),
}


class Failing(Scene):
    """A scene whose trainer fails at whatever it is given.

    :ivar reports: task, reason and message of everything that was reported.
    """

    def __init__(self, root: Path, policy: Mapping[str, Any] | None = None, message: str = SECRET) -> None:
        super().__init__(root, policy=policy)
        self.reports: list[tuple[str, str, str]] = []
        self.message = message
        (self.volume.drop / TASK / "reply.json").unlink()
        kept = self.aggregator.report_failure

        async def record_report(task: str, reason: str, message: str) -> None:
            self.reports.append((task, reason, message))
            await kept(task, reason, message)

        self.aggregator.report_failure = record_report  # type: ignore[method-assign]

    def mend(self) -> None:
        """Have the trainer answer the task."""
        (self.volume.drop / TASK / "failed.json").unlink(missing_ok=True)
        (self.volume.drop / TASK / "reply.json").write_text(REPLY)

    async def ask(self, name: str, round: int = 1, reason: str = "DataInvalid", **changes: Any) -> None:
        """Give a task to a guard that was started again."""
        self.honest |= {"task": name, "round": round, **changes}
        if is_dismissed(self.volume):  # what an earlier trainer has left is gone before a new one fails
            clear_outcome(self.volume)
            self.announce()
        directory = self.volume.drop / name
        directory.mkdir(exist_ok=True)
        (directory / "failed.json").write_text(json.dumps({"reason": reason, "message": self.message}))
        await self.run_until_settled()

    async def run_until_settled(self) -> None:
        """Start a guard, and end the job as soon as its log says what came of the task."""
        before = len(self.outcomes())
        self.aggregator.is_settled = lambda task: len(self.outcomes()) > before  # type: ignore[method-assign]
        await self.run()

    def outcomes(self) -> list[dict[str, Any]]:
        """What came of tasks, in order."""
        ends = ("acknowledged", "failed", "refused", "not-accepted")
        return [line for line in self.lines() if line["event"] in ends]

    def protect(self, changes: dict[str, Any]) -> None:
        """Have the institution admit the job with this protection; the trainer fails before it announces a model."""
        plain = self.check.agent.spec.job.spec
        spec = FederatedJobSpec.model_validate(plain.model_dump(by_alias=True, exclude_none=True) | changes)
        self.check = self.check_of(spec)
        self.honest["spec_digest"] = bytes.fromhex(spec_digest(spec))
        (self.volume.drop / "signature.json").unlink()
        self.announce = lambda: None  # type: ignore[method-assign]

    async def give_up(self, reason: str) -> None:
        """Have the trainer fail for good, in its own words, and a guard start."""
        report = {"reason": reason, "message": self.message}
        (self.volume.drop / "failed.json").write_text(json.dumps(report))
        await self.run()

    def lines(self) -> list[dict[str, Any]]:
        path = self.volume.audit / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


Names = Callable[[int], dict[str, Any]]

TASK_VARIANTS: dict[str, Names] = {
    "always alike": lambda _: {"name": TASK},
    "each time otherwise": lambda number: {"name": f"again-{number}"},
    "otherwise in their bytes": lambda number: {"name": TASK, "settings": {"number": number}},
}


@pytest.mark.parametrize("called", TASK_VARIANTS)
async def test_few_failures_of_an_exchange_leave_however_its_tasks_are(called: str, tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    for number in range(2 * FEW_EXAMPLES):
        await scene.ask(**TASK_VARIANTS[called](number))
    assert 1 <= len(scene.reports) <= FEW_EXAMPLES
    assert len(scene.outcomes()) == 2 * FEW_EXAMPLES, "the institution has all of them"


async def test_few_failures_leave_of_exchanges_that_the_job_does_not_have(tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    for number in range(2 * FEW_EXAMPLES):
        await scene.ask(f"beyond-{number}", round=1000 + number)
    assert 1 <= len(scene.reports) <= FEW_EXAMPLES


async def test_a_trainer_says_its_words_to_one_task_of_an_exchange_alone(tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    await scene.ask(TASK)
    await scene.ask("again")
    (first, reason, said), (second, refused, why) = scene.reports
    assert (first, reason, said) == (TASK, "DataInvalid", SECRET)
    assert (second, refused) == ("again", "ExchangeRefused")
    assert f"task {TASK}, with a failure; each exchange is answered once" in why


async def test_after_a_failure_an_older_exchange_is_over(tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    await scene.ask("r00002-train-north", round=2)
    await scene.ask(TASK)
    assert [reason for _, reason, _ in scene.reports] == ["DataInvalid", "ExchangeRefused"]


async def test_a_job_that_is_resumed_gets_the_update_that_it_first_did_not(tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    for _ in range(2 * FEW_EXAMPLES):
        await scene.ask(TASK)
    scene.mend()
    await scene.run_until_settled()
    assert list(scene.aggregator.uploads) == [TASK]


@pytest.mark.parametrize("protection", PROTECTED_SECTIONS)
async def test_no_words_of_a_trainer_leave_where_single_values_are_protected(
    protection: str, tmp_path: Path
) -> None:
    changes, policy = PROTECTED_SECTIONS[protection]
    scene = Failing(tmp_path, policy)
    scene.protect(changes)
    await scene.give_up("DataInvalid")
    ((task, reason, message),) = scene.reports
    assert (task, reason) == (TASK, "DataInvalid")
    assert message.startswith("the dataset cannot be read, or is not what the job says; ")
    assert "Jane" not in message
    failed = next(line for line in scene.lines() if line["event"] == "failed")
    assert (failed["detail"], failed["told"]) == (SECRET, message), "the institution has both"


@pytest.mark.parametrize("protection", [None, "secure sums"])
async def test_a_reason_is_one_of_the_list(protection: str | None, tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    scene.protect({} if protection is None else PROTECTED_SECTIONS[protection][0])
    await scene.give_up("JaneDoeHasCancer")
    ((_, reason, message),) = scene.reports
    assert (reason, "JaneDoe" in message) == ("TrainerError", False)


@pytest.mark.parametrize("protection", [None, *PROTECTED_SECTIONS])
async def test_what_the_policy_says_is_told_unless_single_values_are_protected(
    protection: str | None, tmp_path: Path
) -> None:
    changes, policy = ({}, {}) if protection is None else PROTECTED_SECTIONS[protection]
    scene = Failing(tmp_path, {"maxBytesPerJob": "1", **policy})
    if protection is not None:
        scene.protect(changes)
    describe(scene, schema=SCHEMA)
    Hearing(scene)
    await scene.run()
    ((_, reason, message),) = scene.reports
    assert reason == "PolicyRefused"
    assert ("policy.maxBytesPerJob is 1" in message) == (protection is None)
    assert any(character.isdigit() for character in message) == (protection is None)


async def test_words_of_a_trainer_take_room_that_the_policy_gives(tmp_path: Path) -> None:
    update = 168
    scene = Failing(tmp_path, {"maxBytesPerJob": f"{update + 2200}"}, message="x" * 900)
    for round in (1, 2, 3):
        await scene.ask(f"r0000{round}-train-north", round=round)
    said = [message for *_, message in scene.reports]
    assert said[:2] == ["x" * 900] * 2
    assert "x" * 100 not in said[2], "there was no room for it any more"
    assert scene.reports[2][1] == "DataInvalid"


async def test_an_update_does_not_leave_where_words_have_taken_its_room(tmp_path: Path) -> None:
    scene = Failing(tmp_path, {"maxBytesPerRound": "1000"}, message="x" * 900)
    await scene.ask(TASK)
    assert scene.reports[0][2] == "x" * 900
    scene.mend()
    await scene.run_until_settled()
    assert scene.aggregator.uploads == {}
    assert "policy.maxBytesPerRound is 1000, 940 bytes have left and an update" in scene.reports[1][2]


class Hearing:
    """The aggregator where names and findings arrive."""

    def __init__(self, scene: Scene, after: Callable[[int], None] = lambda _: None) -> None:
        self.heard: list[Any] = []
        self._after = after
        self._scene = scene
        scene.aggregator.announce_schema = self  # type: ignore[attr-defined]
        scene.aggregator.announce_readiness = self  # type: ignore[attr-defined]

    async def __call__(self, content: bytes) -> None:
        self.heard.append(json.loads(content))
        self._after(len(self.heard))


def describe(scene: Scene, **announced: Any) -> None:
    path = scene.volume.drop / "signature.json"
    path.write_text(json.dumps({"isolation": "none"} | announced))


async def test_a_trainer_does_not_describe_its_data_again_and_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def change_schema(number: int) -> None:
        describe(scene, schema={"columns": [{"name": f"{SECRET} {number}", "type": "number"}]})

    change_schema(0)
    hearing = Hearing(scene, change_schema)
    await scene.run()
    assert len(hearing.heard) == 8
    assert scene.aggregator.failures[TASK][0] == "PolicyRefused"


async def test_names_of_the_data_are_bytes_of_the_job_and_of_no_round(tmp_path: Path) -> None:
    scene = Scene(tmp_path, policy={"maxBytesPerRound": "1", "maxBytesPerJob": "200"})
    describe(scene, schema=SCHEMA)
    hearing = Hearing(scene, lambda _: describe(scene, schema=SCHEMA | {"channels": 3}))
    await scene.run()
    size = len(Schema.from_dict(SCHEMA).to_json())
    assert hearing.heard == [SCHEMA], "though the policy has no room for an update"
    reason, message = scene.aggregator.failures[TASK]
    assert reason == "PolicyRefused"
    assert message == (
        f"silo north: policy.maxBytesPerJob is 200, {size} bytes have left and the names and findings of the data have "
        f"{size - 3} bytes; use shorter names, or ask the institution for more"
    )


SCHEMA = {
    "columns": [{"name": "age", "type": "number"}],
    "target": {"name": SECRET, "type": "number"},
    "channels": 4711,
    "valueRange": "0 to 1",
}


@pytest.mark.parametrize("protection", PROTECTED_SECTIONS)
async def test_names_that_only_the_trainer_says_stay_where_single_values_are_protected(
    protection: str, tmp_path: Path
) -> None:
    changes, policy = PROTECTED_SECTIONS[protection]
    scene = Failing(tmp_path, policy)
    scene.protect(changes)
    hearing = Hearing(scene)
    describe(scene, schema=SCHEMA)
    await scene.give_up("DataInvalid")
    assert hearing.heard == [{}]


async def test_of_findings_only_codes_leave_where_single_values_are_protected(tmp_path: Path) -> None:
    scene = Failing(tmp_path, {"payloadKinds": ["model", "class_counts", "feature_statistics"]})
    asked = {"data": {"dataset": "digits", "classes": 3, "inputShape": [4], "check": "report"}}
    scene.protect({**PROTECTED_SECTIONS["secure sums"][0], **asked})
    hearing = Hearing(scene)
    findings = [
        {"code": "Unreadable", "message": SECRET},
        {"code": "FeatureConstant", "places": [0, 3], "count": 2},
        {"code": "Duplicates", "count": 4_711_000_017},
        {"code": "ClassSmall", "places": [1], "count": 1},
    ]
    describe(scene, findings=findings)
    await scene.give_up("DataInvalid")
    codes = [{"code": code} for code in ("Unreadable", "FeatureConstant", "Duplicates")]
    assert hearing.heard == [{"findings": codes}]


async def test_a_refused_update_is_an_answer_of_which_few_reports_leave(tmp_path: Path) -> None:
    scene = Failing(tmp_path)
    (scene.volume.drop / TASK / "reply.json").write_text(REPLY)
    for _ in range(2 * FEW_EXAMPLES):
        scene.aggregator.refusals = [Problem("not-finite", "block encoder.weight has a NaN")]
        await scene.run_until_settled()
    assert len(scene.reports) == FEW_EXAMPLES
