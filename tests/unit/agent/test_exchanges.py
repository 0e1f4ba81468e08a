"""A guard answers each exchange of its job once, whatever it is asked and however often it is restarted."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from fedsilo.methods.interface import Exchange, Phase
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import Task, seal_task
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.exchanges import (
    Answer,
    ExchangeRefused,
    Schedule,
    require_new_model,
    require_same_answer,
)
from tests.unit.agent.scene import Scene
from tests.unit.methods.forms import FORMS, form_spec

D1, D2 = "1" * 64, "2" * 64


def task(name: str, round: int, phase: str = "train", step: str | None = None) -> Task:
    return Task(
        job="job",
        silo="silo-north/north",
        task=name,
        round=round,
        phase=phase,
        step=phase if step is None else step,
        spec_digest=bytes(32),
        contract=bytes(32),
        blobs=(),
        settings={},
    )


def of(*names: tuple[int, str]) -> Schedule:
    """A schedule of these rounds and phases; each step is called like its phase."""
    return Schedule(Exchange(Phase(phase, 1, phase), round, 1, 1) for round, phase in names)


THREE = of((1, "train"), (1, "evaluate"), (2, "train"), (3, "train"), (3, "evaluate"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (task("t", 4), "round 4, phase 'train', step 'train', which is no exchange of this job of 3 rounds"),
        (task("t", 0), "which is no exchange of this job"),
        (task("t", 2, "evaluate"), "which is no exchange of this job"),
        (task("t", 2, "other"), "which is no exchange of this job"),
        (task("t", 2, "train", "evaluate"), "phase 'train', step 'evaluate', which is no exchange"),
    ],
)
def test_what_is_no_exchange_of_the_job_is_refused(asked: Task, words: str) -> None:
    with pytest.raises(ExchangeRefused, match=words):
        THREE.require_due(asked, D1, {})


def test_an_exchange_is_answered_to_one_task_only() -> None:
    answered = {(2, "train"): Answer("r2", D1, "ab" * 32)}
    THREE.require_due(task("r2", 2), D1, answered)
    for name, digest in (("other", D1), ("r2", D2), ("other", D2)):
        with pytest.raises(
            ExchangeRefused, match="has answered: task r2, update abababababab; each exchange"
        ):
            THREE.require_due(task(name, 2), digest, answered)


def test_what_lies_before_the_last_answer_is_over() -> None:
    answered = {(1, "train"): Answer("r1", D1, D1), (2, "train"): Answer("r2", D1, D1)}
    for asked in (task("r1", 1), task("e1", 1, "evaluate")):
        with pytest.raises(
            ExchangeRefused, match="is over: this silo has answered round 2, phase 'train' since"
        ):
            THREE.require_due(asked, D1, answered)
    for asked in (task("r3", 3), task("e3", 3, "evaluate")):
        THREE.require_due(asked, D1, answered)


def test_a_model_that_was_answered_is_not_answered_again_in_another_exchange_of_its_kind() -> None:
    answered = {(1, "train"): Answer("t", D1, D1, step="train", model=D1)}
    require_new_model(task("t", 1), D1, answered)  # the same task, after a restart
    require_new_model(task("t", 2), D2, answered)
    require_new_model(task("t", 1, "evaluate"), D1, answered)  # its scores are another sum
    with pytest.raises(
        ExchangeRefused, match=r"hands out 1{12} again, which this silo has answered in round 1, phase"
    ):
        require_new_model(task("u", 2), D1, answered)


def test_the_same_task_departs_again_with_the_same_update_only() -> None:
    answered = {(2, "train"): Answer("r2", D1, "ab" * 32)}
    require_same_answer(task("r2", 2), "ab" * 32, answered)
    require_same_answer(task("r3", 3), "cd" * 32, answered)
    with pytest.raises(
        ExchangeRefused, match=r"answered with update abababababab, .* gives cdcdcdcdcdcd now"
    ):
        require_same_answer(task("r2", 2), "cd" * 32, answered)


@pytest.mark.parametrize("form", FORMS)
def test_an_honest_job_of_every_method_is_due_from_its_first_exchange_to_its_last(form: str) -> None:
    exchanges = JobPlan.of(form_spec(form, ["north", "south"])).exchanges
    schedule = Schedule(exchanges)
    answered: dict[tuple[int, str], Answer] = {}
    for number, exchange in enumerate(exchanges):
        phase = exchange.phase
        asked = task(f"t{number}", exchange.round, phase.name, phase.step)
        for _ in range(2):
            schedule.require_due(asked, D1, answered)
            answered[exchange.round, phase.name] = Answer(asked.task, D1, D2)
    assert len(answered) == len(exchanges), "round and phase tell exchanges apart"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_asked_in_whatever_order_each_exchange_has_one_answer(seed: int, tmp_path: Path) -> None:
    """Departures only move on through the schedule, and a restart at any point changes no decision."""
    draw = random.Random(seed)
    order = [(1, "train"), (1, "evaluate"), (2, "train"), (3, "train"), (3, "evaluate")]
    audit, sent = AuditLog(tmp_path), []
    for _ in range(40):
        round, phase = draw.choice([*order, (4, "train"), (2, "evaluate")])
        name, digest = f"t{draw.randrange(3)}", draw.choice([D1, D2])
        try:
            THREE.require_due(task(name, round, phase), digest, audit.record.answered)
        except ExchangeRefused:
            continue
        finally:
            if draw.random() < 0.3:
                audit = AuditLog(tmp_path)
        update = hashlib.sha256(f"{name}{digest}".encode()).hexdigest()
        facts: dict[str, Any] = {"task": name, "taskDigest": digest, "round": round, "phase": phase}
        audit.write("departure", **facts, step=phase, digest=update)
        sent.append((order.index((round, phase)), update))
    assert sent
    assert [place for place, _ in sent] == sorted(place for place, _ in sent)
    assert len(set(sent)) == len({place for place, _ in sent}), "one update for each exchange"
    assert AuditLog(tmp_path).record == audit.record


def test_a_log_whose_departures_have_no_phase_still_tells_what_was_answered(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path)
    audit.write("departure", task="r2", round=2, step="train", digest=D2)
    answered = AuditLog(tmp_path).record.answered
    THREE.require_due(task("r2", 2), D1, answered)
    with pytest.raises(ExchangeRefused, match="answered once"):
        THREE.require_due(task("again", 2), D1, answered)
    with pytest.raises(ExchangeRefused, match="is over"):
        THREE.require_due(task("r1", 1), D1, answered)


@pytest.fixture
async def answered_scene(tmp_path: Path) -> Scene:
    """A silo that has answered round 2."""
    scene = Scene(tmp_path)
    scene.honest |= {"task": "r00002-train-north", "round": 2}
    scene.drop("r00002-train-north")
    await scene.run()
    return scene


ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "the same round under another name": ({"task": "r00002-again"}, "each exchange is answered once"),
    "other bytes of the same task": ({"settings": {"more": 1}}, "each exchange is answered once"),
    "an older round": ({"task": "r00001-train-north", "round": 1}, "this silo has answered round 2"),
    "a round beyond the job's": ({"task": "r00004-train-north", "round": 4}, "no exchange of this job of 3"),
    "a phase that the job does not have": ({"task": "more", "phase": "more"}, "no exchange of this job"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_restarted_guard_refuses_records_and_reports(attack: str, answered_scene: Scene) -> None:
    changes, words = ATTACKS[attack]
    before = (answered_scene.volume.audit / "log.jsonl").read_text().splitlines()
    answered_scene.aggregator.uploads.clear()
    answered_scene.honest |= changes
    name = answered_scene.honest["task"]
    if not (answered_scene.volume.drop / name).exists():
        answered_scene.drop(name)
    await answered_scene.run()
    line, last = map(
        json.loads, (answered_scene.volume.audit / "log.jsonl").read_text().splitlines()[len(before) :]
    )
    assert (line["event"], line["task"], last["event"]) == ("refused", name, "finished")
    assert words in line["detail"]
    assert answered_scene.aggregator.failures == {name: ("ExchangeRefused", line["detail"])}
    assert answered_scene.aggregator.uploads == {}


async def test_a_restarted_guard_answers_the_same_task_with_the_same_bytes(answered_scene: Scene) -> None:
    (first,) = answered_scene.aggregator.uploads.pop("r00002-train-north")
    await answered_scene.run()
    assert answered_scene.aggregator.uploads == {"r00002-train-north": [first]}
    assert answered_scene.aggregator.failures == {}


async def test_another_reply_of_the_trainer_to_an_answered_task_stays(answered_scene: Scene) -> None:
    drop = answered_scene.volume.drop / "r00002-train-north"
    (drop / "reply.json").write_text(json.dumps({"samples": 11, "metrics": {}, "support": {}}))
    answered_scene.aggregator.uploads.clear()
    await answered_scene.run()
    assert answered_scene.aggregator.uploads == {}
    reason, message = answered_scene.aggregator.failures["r00002-train-north"]
    assert reason == "ExchangeRefused"
    assert "the trainer's reply gives" in message
    assert list(answered_scene.volume.outbox.iterdir()) == []


async def test_a_round_that_was_closed_without_the_silo_is_skipped(answered_scene: Scene) -> None:
    answered_scene.honest |= {"task": "r00003-train-north", "round": 3}
    answered_scene.drop("r00003-train-north")
    await answered_scene.run()
    assert set(answered_scene.aggregator.uploads) == {"r00002-train-north", "r00003-train-north"}


async def test_the_task_digest_of_a_departure_is_that_of_the_sealed_bytes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    sealed = seal_task(Task(**scene.honest), scene.aggregator.key)
    await scene.run()
    lines = (scene.volume.audit / "log.jsonl").read_text().splitlines()
    departure = next(line for line in map(json.loads, lines) if line["event"] == "departure")
    assert departure["taskDigest"] == hashlib.sha256(sealed).hexdigest()
    assert (departure["round"], departure["phase"], departure["step"]) == (1, "train", "train")
