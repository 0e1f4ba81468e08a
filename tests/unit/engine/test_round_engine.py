"""The open exchange and the rounds around it, driven as the service drives them."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typing_extensions import override

from fedsilo.engine import exchange
from fedsilo.engine.round import fatal_failure
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import DataInvalid, DeadlineExceeded, MethodError, Problem, QuorumLost, SiloFailed
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.wire import FINISH, UpdateCheck, open_task
from tests.federate import (
    TASK_KEY,
    LocalSilo,
    drive,
    federate,
    job_spec,
    local_silos,
    model_of,
    open_engine,
)
from tests.unit.engine.synthetic import Diary, DiarySilo, SyntheticRunner, synthetic_runners

Opening = tuple[RoundEngine, list[LocalSilo]]
SPEC = job_spec("fedavg", 3, rounds=2, participation={"minSilos": 2, "roundDeadline": "90s"})


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    return open_engine(tmp_path / "aggregator", SPEC), local_silos(tmp_path, synthetic_runners(SPEC))


def refusal(engine: RoundEngine, task: str, sender: str = "silos/s0") -> str:
    with pytest.raises(Problem) as caught:
        engine.expected_update(task, sender)
    return caught.value.code


def test_a_round_goes_on_without_a_silo_that_failed_and_the_history_says_why(tmp_path: Path) -> None:
    engine = federate(tmp_path, SPEC, synthetic_runners(SPEC, absent={"silos/s2": [1]}))
    first, second = engine.history()
    assert first["failed"] == {"silos/s2": "TrainerError: out of memory"}
    assert first["samples"].keys() == {"silos/s0", "silos/s1"}
    assert second["failed"] == {}
    assert second["samples"].keys() == {"silos/s0", "silos/s1", "silos/s2"}


def test_the_silos_that_a_deadline_cut_off_are_recorded_as_missing(opening: Opening) -> None:
    engine, silos = opening
    for silo in silos[1:]:
        silo.answer(engine)
    engine.wait(89.9)
    assert not engine.settle()
    engine.wait(0.2)
    assert engine.settle()
    assert refusal(engine, "r00001-train-s0") == "round-closed"
    drive(engine, silos)
    assert [line["missing"] for line in engine.history()] == [["silos/s0"], []]


def test_with_too_few_answers_at_the_deadline_the_job_fails_and_names_the_silos(opening: Opening) -> None:
    engine, silos = opening
    silos[1].answer(engine)
    engine.wait(90)
    assert engine.settle()
    assert isinstance(engine.failure, DeadlineExceeded)
    assert "still awaited after 90 s: silos/s0, silos/s2" in str(engine.failure)
    task = engine.task("silos/s0")
    assert task is not None
    assert open_task(task.sealed, TASK_KEY.verify_key).settings == {"succeeded": False}
    assert refusal(engine, "r00001-train-s0") == "job-finished"


def test_when_quorum_is_out_of_reach_the_job_fails_at_once(tmp_path: Path) -> None:
    absent = {"silos/s0": [2], "silos/s1": [2]}
    with pytest.raises(QuorumLost, match="silos/s0 failed: TrainerError: out of memory; silos/s1 failed"):
        federate(tmp_path, SPEC, synthetic_runners(SPEC, absent))


def test_a_silo_whose_data_are_wrong_fails_the_job_under_its_reason(tmp_path: Path) -> None:
    class InvalidDataRunner(SyntheticRunner):
        @override
        def run(self, task: SiloTask, private: State) -> Reply:
            del task, private
            raise DataInvalid("item 3 holds NaN")

    with pytest.raises(SiloFailed, match="silo silos/s1: item 3 holds NaN") as caught:
        federate(tmp_path, SPEC, synthetic_runners(SPEC) | {"silos/s1": InvalidDataRunner("silos/s1")})
    assert (caught.value.reason, caught.value.exit_code) == ("DataInvalid", 4)


def test_a_fatal_failure_is_known_before_its_round_is_over(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, silos = opening
    *others, last = engine.identity.silos
    for silo, member in zip(others, silos, strict=False):
        task = engine.task(silo)
        assert task is not None
        member.send(engine, task.id, member.sign(engine, task.contract, task.sealed))
    open_then = []

    def recorded_failure(silo: str, reason: str, message: str) -> SiloFailed | None:
        open_then.append(engine.awaits_answers)
        return fatal_failure(silo, reason, message)

    # Failures are recorded in a thread, and the loop may look at the round between any two steps of it.
    monkeypatch.setattr("fedsilo.engine.exchange.fatal_failure", recorded_failure)
    task = engine.task(last)
    assert task is not None
    engine.fail(last, task.id, "DataInvalid", "item 3 holds NaN")
    assert open_then == [True]
    assert isinstance(engine.failure, SiloFailed)


def test_an_answer_counts_although_its_silo_had_failed_before(opening: Opening) -> None:
    engine, silos = opening
    task = engine.task("silos/s0")
    assert task is not None
    assert engine.fail("silos/s0", task.id, "TrainerLost", "crashed")
    assert engine.task("silos/s0") is None
    silos[0].send(engine, task.id, silos[0].sign(engine, task.contract, task.sealed))
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.failed == {}
    assert engine.current_exchange.round.answered == {"silos/s0"}


def test_a_failure_after_the_answer_does_not_count(opening: Opening) -> None:
    engine, silos = opening
    silos[0].answer(engine)
    assert not engine.fail("silos/s0", "r00001-train-s0", "DataInvalid", "no such file")
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.failed == {}
    assert engine.failure is None


def test_silos_that_fail_at_the_same_time_are_all_recorded(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each from its own thread; what comes when the round is over by that writes nothing more."""
    engine, _ = opening
    together, found = threading.Barrier(3), RoundEngine._exchange_of

    def at_once(engine: RoundEngine, task: str) -> exchange.OpenExchange:
        current = found(engine, task)
        together.wait(30)
        return current

    monkeypatch.setattr(RoundEngine, "_exchange_of", at_once)
    with ThreadPoolExecutor() as threads:
        failing = [
            threads.submit(engine.fail, silo, f"r00001-train-{silo[-2:]}", "TrainerLost", "crashed")
            for silo in ("silos/s0", "silos/s1", "silos/s2")
        ]
        outcomes = [done.exception() or done.result() for done in failing]
    assert outcomes.count(True) == 2
    (late,) = [found for found in outcomes if isinstance(found, Problem)]
    assert late.code == "round-closed"
    current = engine.current_exchange
    assert current is not None
    assert len(current.round.failed) == 2
    stored = read_with_digest(current.directory / "failures.json", "")
    assert stored is not None
    assert stored.keys() == current.round.failed.keys()


def test_a_silo_cannot_fail_for_another_nor_for_a_task_that_is_not_open(opening: Opening) -> None:
    engine, _ = opening
    for silo, task, code in (
        ("silos/s1", "r00001-train-s0", "wrong-sender"),
        ("silos/s0", "r00002-train-s0", "unknown-task"),
    ):
        with pytest.raises(Problem) as caught:
            engine.fail(silo, task, "DataInvalid", "no such file")
        assert caught.value.code == code
    assert engine.failure is None


def said_of(engine: RoundEngine, task: str, sender: str) -> str:
    """What a silo is told about a task when it reports that it cannot do it."""
    with pytest.raises(Problem) as caught:
        engine.fail(sender, task, "DataInvalid", "no such file")
    with pytest.raises(Problem) as again:
        engine.require_sender(task, sender)
    assert str(again.value) == str(caught.value)
    return str(caught.value)


def test_a_silo_is_never_told_whether_another_has_answered(opening: Opening) -> None:
    engine, silos = opening
    before = [said_of(engine, f"r0000{number}-train-s0", "silos/s1") for number in (1, 2)]
    assert all(text.startswith("wrong-sender: ") for text in before)
    silos[0].answer(engine)
    assert [said_of(engine, f"r0000{number}-train-s0", "silos/s1") for number in (1, 2)] == before
    drive(engine, silos)
    assert [said_of(engine, f"r0000{number}-train-s0", "silos/s1") for number in (1, 2)] == before


def test_an_update_that_is_whole_after_its_round_was_closed_is_not_accepted(opening: Opening) -> None:
    engine, silos = opening
    task = engine.task("silos/s0")
    assert task is not None
    update = silos[0].sign(engine, task.contract, task.sealed)
    checker = UpdateCheck(engine.expected_update(task.id, "silos/s0"), silos[0].key.verify_key)
    checker.feed(update.read_bytes())
    for silo in silos[1:]:
        silo.answer(engine)
    engine.wait(90)
    with pytest.raises(Problem) as caught:
        engine.accept("silos/s0", update, checker.finish())
    assert caught.value.code == "round-closed"
    assert engine.accepted_digest(task.id) is None
    assert update.exists()


def test_updates_that_are_not_awaited_are_refused_with_their_code(opening: Opening) -> None:
    engine, silos = opening
    assert refusal(engine, "r00001-train-s0", "silos/s1") == "wrong-sender"
    assert refusal(engine, "r00009-train-s0") == "unknown-task"
    assert refusal(engine, "r00002-train-s0") == "unknown-task"
    for silo in silos:
        silo.answer(engine)
    assert refusal(engine, "r00001-train-s0") == "round-closed"
    first = engine.accepted_digest("r00001-train-s0")
    engine.settle()
    assert first is not None
    assert engine.accepted_digest("r00001-train-s0") == first, (
        "a repeated upload is recognised in later rounds"
    )
    assert refusal(engine, "r00001-train-s0") == "round-closed"
    drive(engine, silos)
    assert refusal(engine, "r00002-train-s0") == "job-finished"
    assert engine.accepted_digest("r00001-train-s0") == first
    finish = engine.task("silos/s0")
    assert finish is not None
    assert finish.id == FINISH
    assert open_task(finish.sealed, TASK_KEY.verify_key).settings == {"succeeded": True}


def test_a_blob_is_served_only_while_an_open_task_refers_to_it(opening: Opening) -> None:
    engine, silos = opening
    task = engine.task("silos/s0")
    assert task is not None
    (link,) = open_task(task.sealed, TASK_KEY.verify_key).blobs
    assert engine.blob(link.digest) is not None
    assert engine.blob("0" * 64) is None
    for silo in silos:
        silo.answer(engine)
    engine.settle()
    assert engine.blob(link.digest) is None


def reopened_engine(tmp_path: Path) -> RoundEngine:
    return open_engine(tmp_path / "aggregator", SPEC)


def test_a_restart_takes_up_answers_failures_and_time(opening: Opening, tmp_path: Path) -> None:
    engine, silos = opening
    silos[2].answer(engine)
    engine.fail("silos/s0", "r00001-train-s0", "TrainerError", "out of memory")
    engine.wait(10.75)
    before, again = engine.current_exchange, reopened_engine(tmp_path).current_exchange
    assert before is not None
    assert again is not None
    assert again.accepted == before.accepted
    assert again.tasks == before.tasks
    assert again.round.answered == {"silos/s2"}
    assert again.round.failed == {"silos/s0": "TrainerError: out of memory"}
    assert again.round.elapsed == 10.75


def test_a_deadline_that_has_passed_has_passed_after_a_restart_too(opening: Opening, tmp_path: Path) -> None:
    engine, _ = opening
    for _ in range(1000):
        engine.wait(0.09)
    engine.wait(0.09)
    again = reopened_engine(tmp_path)
    assert again.settle()
    assert isinstance(again.failure, DeadlineExceeded)


def test_an_answer_that_arrives_while_time_is_stored_is_not_lost(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, silos = opening
    store = write_with_digest

    def answer_before_store(*arguments: Any) -> None:
        silos[1].answer(engine)
        store(*arguments)

    monkeypatch.setattr(exchange, "write_with_digest", answer_before_store)
    engine.wait(5)
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.answered == {"silos/s1"}
    assert engine.current_exchange.round.elapsed == 5


def test_time_that_could_not_be_stored_ends_no_round(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = opening
    with monkeypatch.context() as full:
        full.setattr(exchange, "write_with_digest", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            engine.wait(91)
    assert engine.awaits_answers
    engine.wait(91)
    assert not engine.awaits_answers


def test_whoever_resumes_a_failed_job_gets_the_round_anew(opening: Opening, tmp_path: Path) -> None:
    engine, silos = opening
    silos[0].answer(engine)
    engine.fail("silos/s1", "r00001-train-s1", "DataInvalid", "no such file")
    engine.wait(50)
    assert isinstance(reopened_engine(tmp_path).failure, SiloFailed), (
        "a failure outlives a crash before it is told"
    )
    engine.forget_failures()
    again = reopened_engine(tmp_path)
    assert again.failure is None
    assert again.current_exchange is not None
    assert again.current_exchange.round.elapsed == 0
    assert again.current_exchange.round.answered == {"silos/s0"}
    drive(again, silos)
    assert again.result is not None


def test_the_order_of_arrival_does_not_change_the_model(tmp_path: Path) -> None:
    forward = synthetic_runners(SPEC)
    backward = dict(reversed(synthetic_runners(SPEC).items()))
    models = [federate(tmp_path / str(n), SPEC, order).result for n, order in enumerate((forward, backward))]
    assert models[0] is not None
    assert models[1] is not None
    assert models[0].sha256 == models[1].sha256


def test_sampled_silos_only_are_asked_and_everybody_evaluates(tmp_path: Path) -> None:
    spec = job_spec("fedavg", 4, rounds=3, participation={"fraction": 0.5})
    asked = synthetic_runners(spec)
    engine = federate(tmp_path, spec, asked)
    for line in engine.history():
        trained = {silo for silo, runner in asked.items() if f"train {line['round']}" in runner.answered}
        assert line["samples"].keys() == trained
        assert len(trained) == 2
    assert all(runner.answered[-1] == "evaluate 3" for runner in asked.values())


class DiaryRunner:
    """Private state and per-silo tasks need no data."""

    def __init__(self, silo: str) -> None:
        self.silo = silo
        self.half = DiarySilo()

    def run(self, task: SiloTask, private: State) -> Reply:
        if task.step == "evaluate":
            return Reply()
        reply: Reply = getattr(self.half, task.step)(self, task, private)
        return reply


def test_each_silo_gets_its_own_tree_and_keeps_its_own_state_across_phases(tmp_path: Path) -> None:
    spec = job_spec("fedavg", 3, rounds=3)
    engine = federate(
        tmp_path, spec, {f"silos/s{n}": DiaryRunner(f"silos/s{n}") for n in range(3)}, method=Diary
    )
    model = model_of(engine)
    # Count of the silo's rounds, and the count that the aggregator had sent it, one round behind.
    assert all(model[f"silos/s{n}"].tolist() == [3, 2] for n in range(3))
    assert [line["phase"] for line in engine.history()] == ["write", "write", "write", "read"]
    assert [line["training"] for line in engine.history()] == [
        *({"rounds": n} for n in (1.0, 2.0, 3.0)),
        {},
    ]


def test_private_state_of_an_answer_that_was_never_accepted_does_not_count(tmp_path: Path) -> None:
    spec = job_spec("fedavg", 2, rounds=2, participation={"minSilos": 1, "roundDeadline": "10s"})
    engine = open_engine(tmp_path / "aggregator", spec, method=Diary)
    late, other = local_silos(tmp_path, {f"silos/s{n}": DiaryRunner(f"silos/s{n}") for n in range(2)})
    other.answer(engine)
    sealed, opened = engine.task(late.reference), engine.current_exchange
    assert sealed is not None
    assert opened is not None
    update = late.sign(engine, sealed.contract, sealed.sealed)
    engine.wait(10)
    with pytest.raises(Problem, match="round-closed"):
        late.send(engine, sealed.id, update)
    engine.settle()
    drive(engine, [late, other])
    assert late.private_state.values == {"rounds": 1}
    assert other.private_state.values == {"rounds": 2}


def broken_diary(function: str) -> type[Diary]:
    """The diary with a server half whose function has a defect."""

    class BrokenDiary(Diary):
        @override
        def server(self) -> Any:
            half = super().server()
            setattr(half, function, lambda *_: dict[str, Any]()["missing"])
            return half

    return BrokenDiary


@pytest.mark.parametrize("function", ["assign", "aggregate"])
def test_a_defect_in_a_methods_server_half_is_blamed_on_the_method(tmp_path: Path, function: str) -> None:
    spec = job_spec("fedavg", 1)
    answering = {"silos/s0": DiaryRunner("silos/s0")}
    with pytest.raises(MethodError, match=f"{function} of method diary failed: KeyError: 'missing'"):
        federate(tmp_path, spec, answering, method=broken_diary(function))


def test_updates_that_cannot_be_weighted_fail_the_job(tmp_path: Path) -> None:
    spec = job_spec("fedavg", 2)
    with pytest.raises(MethodError, match="no silo of silos/s0, silos/s1 states any sample"):
        federate(tmp_path, spec, {f"silos/s{n}": SyntheticRunner(f"silos/s{n}", samples=0) for n in range(2)})
