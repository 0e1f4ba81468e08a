"""A guard that is killed, answers that are lost, and the log of everything that left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.files.json_files import read_json
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo_agent.guard.audit import AuditLog, verify
from tests.integration.service.client import signature_of
from tests.integration.service.scripted import LOST_ANSWER, OVERTAKEN_ANSWER, TREE, ScriptedAggregator
from tests.integration.service.site import wait_until
from tests.updates import digest_of


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[ScriptedAggregator]:
    """A guard of each test's own, which it may leave in ruins."""
    with ScriptedAggregator(tmp_path) as aggregator:
        yield aggregator


def answer(silo: ScriptedAggregator, task: str) -> None:
    """Have the guard answer an honest task."""
    silo.drop(task)
    silo.offer(silo.task(task))
    silo.wait_acknowledged(task)


def kill_guard(silo: ScriptedAggregator) -> None:
    assert silo.guard is not None
    silo.guard.kill()


def inbox(silo: ScriptedAggregator, task: str) -> Any:
    """What the trainer is told once the guard gives it a task."""

    def inbox_task() -> Any:
        document = read_json(silo.volume.task)
        return document if document and document["task"] == task else None

    return wait_until(inbox_task, f"{task} in the inbox")


def test_nothing_is_announced_before_its_line_is_in_the_audit_log(silo: ScriptedAggregator) -> None:
    answer(silo, "r00001-first")
    signature, departure = map(json.loads, silo.log_before["r00001-first"].splitlines())
    assert (signature["event"], signature["tensors"]) == ("signature", 2)
    sent = silo.uploads["r00001-first"][0]
    assert departure["event"] == "departure"
    assert departure["digest"] == digest_of(sent)
    assert departure["bytes"] == len(sent)
    assert departure["kinds"] == {"model": {"blocks": 2, "bytes": 168}}
    assert departure["metrics"] == {"loss": 0.5}


def test_a_guard_killed_before_the_acknowledgement_sends_the_same_bytes_again(
    silo: ScriptedAggregator,
) -> None:
    answer(silo, "r00001-first")
    task = "r00002-killed"
    silo.drop(task)
    silo.outcomes.append(LOST_ANSWER)
    silo.offer(silo.task(task))
    wait_until(lambda: silo.uploads[task], "the first try")
    kill_guard(silo)
    assert inbox(silo, task)["acknowledged"] == "r00001-first", "not accepted: the private state stays"
    silo.guard = silo.site.guard()
    silo.wait_acknowledged(task)
    first, second = silo.uploads[task]
    assert first == second
    assert silo.events(task) == ["departure", "acknowledged"], "one departure, however often it was sent"


def test_a_guard_killed_after_the_acknowledgement_tells_the_trainer_so(silo: ScriptedAggregator) -> None:
    answer(silo, "r00001-before")
    kill_guard(silo)
    silo.offer(silo.task("r00002-after"))
    silo.guard = silo.site.guard()
    assert inbox(silo, "r00002-after")["acknowledged"] == "r00001-before"
    silo.drop("r00002-after")
    silo.wait_acknowledged("r00002-after")


@pytest.mark.parametrize("restarted", [False, True], ids=["to the same guard", "to a restarted guard"])
def test_a_task_that_is_given_again_after_its_acknowledgement_is_answered_with_the_same_bytes(
    silo: ScriptedAggregator, restarted: bool
) -> None:
    """An aggregator that restarts may have lost the answer, or found it damaged."""
    answer(silo, "r00001-before")
    answer(silo, "r00002-lost")
    silo.accepted.clear()
    if restarted:
        kill_guard(silo)
        silo.guard = silo.site.guard()
    else:
        silo.offer_again()
    first, second = wait_until(
        lambda: silo.uploads["r00002-lost"][1:] and silo.uploads["r00002-lost"], "it again"
    )
    assert first == second
    assert inbox(silo, "r00002-lost")["acknowledged"] == "r00001-before", (
        "the state that it was computed from"
    )


def test_an_answer_under_way_when_its_task_is_given_again_departs_once(silo: ScriptedAggregator) -> None:
    task = "r00001-under-way"
    silo.drop(task)
    silo.outcomes.append(LOST_ANSWER)
    silo.offer(silo.task(task))
    wait_until(lambda: silo.uploads[task], "the first try")
    silo.offer_again()
    silo.wait_acknowledged(task)
    answer(silo, "r00002-next")
    assert silo.events(task) == ["departure", "acknowledged"]
    first, second = silo.uploads[task]
    assert first == second


def test_an_acceptance_that_the_next_task_overtakes_still_counts(silo: ScriptedAggregator) -> None:
    """The answer to the upload is lost on the way, and the next task is there already."""
    silo.drop("r00004-overtaken")
    silo.outcomes.append(OVERTAKEN_ANSWER)
    silo.offer(silo.task("r00004-overtaken"))
    wait_until(lambda: silo.uploads["r00004-overtaken"], "the upload")
    silo.offer(silo.task("r00005-next"))
    assert inbox(silo, "r00005-next")["acknowledged"] == "r00004-overtaken"
    assert len(silo.uploads["r00004-overtaken"]) == 1
    silo.drop("r00005-next")
    silo.wait_acknowledged("r00005-next")


def test_a_task_that_a_newer_one_overtakes_leaves_nothing_behind(silo: ScriptedAggregator) -> None:
    silo.offer(silo.task("r00006-too-slow"))
    inbox(silo, "r00006-too-slow")
    silo.offer(silo.task("r00007-newer"))
    silo.drop("r00007-newer")
    silo.wait_acknowledged("r00007-newer")
    wait_until(lambda: not list(silo.volume.outbox.iterdir()), "the outbox to be cleared")
    assert silo.events("r00006-too-slow") == []


def test_the_last_task_ends_the_guard_and_the_log_holds(silo: ScriptedAggregator) -> None:
    answer(silo, "r00001-first")
    silo.offer(silo.task("finish", step="finish", blobs=(), settings={"succeeded": True}))
    assert silo.guard is not None
    assert silo.guard.exit_code() == 0
    lines, _ = verify(silo.volume.audit / "log.jsonl")
    assert lines == len(silo.audit())
    assert silo.audit()[-1]["event"] == "finished"
    assert silo.audit()[-1]["hash"] in silo.site.log("north"), "a hash to keep elsewhere"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    audit = AuditLog(tmp_path)
    for number in range(4):
        audit.write("departure", task=f"r{number}", bytes=100 + number)
    return audit.path


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("number", range(4))
def test_a_changed_line_breaks_the_audit_chain(number: int, log: Path) -> None:
    lines = lines_of(log)
    lines[number] = lines[number].replace(f'"bytes": {100 + number}', '"bytes": 1')
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditBroken, match=f"line {number + 1} "):
        verify(log)


@pytest.mark.parametrize("number", range(3))
def test_a_removed_line_breaks_the_audit_chain(number: int, log: Path) -> None:
    lines = lines_of(log)
    del lines[number]
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditBroken, match=f"line {number + 1} "):
        verify(log)


@pytest.mark.parametrize("number", range(5))
def test_an_inserted_line_breaks_the_audit_chain(number: int, log: Path) -> None:
    lines = lines_of(log)
    lines.insert(number, lines[min(number, 3)].replace("departure", "acknowledged"))
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditBroken):
        AuditLog(log.parent)


def test_exchanged_lines_break_the_audit_chain(log: Path) -> None:
    one, two, three, four = lines_of(log)
    log.write_text("\n".join([one, three, two, four]) + "\n")
    with pytest.raises(AuditBroken, match="line 2 "):
        verify(log)


def test_a_last_line_that_a_crash_tore_is_cut_off(log: Path) -> None:
    whole = log.read_text()
    with log.open("a") as file:
        file.write(whole.splitlines()[-1][:30])
    AuditLog(log.parent).write("departure", task="r4")
    assert log.read_text().startswith(whole)
    assert verify(log)[0] == 5


def test_a_model_that_changes_its_shape_is_refused(silo: ScriptedAggregator) -> None:
    answer(silo, "r00001-north")
    other = {**TREE, "extra": TREE["classifier.weight"]}
    document = {"signature": signature_of(other).to_dict(), "isolation": "none"}
    (silo.volume.drop / "signature.json").write_text(json.dumps(document))
    silo.offer(silo.task("r00002-north", round=2))
    wait_until(lambda: "r00002-north" in silo.failures, "the refusal")
    assert "is not the one that it had before round 1" in silo.failures["r00002-north"]["message"]
    assert not silo.uploads["r00002-north"]


def test_a_guard_whose_log_was_changed_declines_every_task(silo: ScriptedAggregator) -> None:
    answer(silo, "r00001-north")
    assert silo.guard is not None
    silo.guard.kill()
    log = silo.volume.audit / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"departure", b"arrival\xff", 1))
    silo.guard = silo.site.guard()
    for number in (2, 3):
        name = f"r0000{number}-north"
        silo.offer(silo.task(name, round=number))
        wait_until(lambda name=name: name in silo.failures, "the report")  # type: ignore[misc]
        assert silo.failures[name]["reason"] == "AuditBroken"
        assert not silo.uploads[name]
    assert "AuditBroken" in silo.site.log("north"), "whoever looks after the silo need not ask the aggregator"
