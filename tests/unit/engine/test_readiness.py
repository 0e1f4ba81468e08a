"""The check before round 1: who waits for whom, what ends the job, and what outlives a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.data.schema import Schema
from fedsilo.engine.readiness import ReadinessCheck
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.status import StatusSource
from fedsilo.errors import DataInvalid, FileDamaged, Problem, SiloFailed
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.wire import open_task
from tests.federate import TASK_KEY, drive, job_spec, local_silos, open_engine
from tests.unit.engine.synthetic import synthetic_runners

NAMES = ("cat", "dog", "owl", "yak")
SILOS = ("silos/s0", "silos/s1", "silos/s2")
READY_SCHEMA = Schema(classes=NAMES)
UNREADABLE_FINDINGS = (AnnouncedFinding("Unreadable", message="item 3 is torn; mend it"),)
COPIES = (AnnouncedFinding("Duplicates", count=9),)
EMPTY_FINDINGS = (AnnouncedFinding("NoTrainingExamples"),)


def engine_of(directory: Path, check: str) -> RoundEngine:
    data = {"check": check, "classes": list(NAMES)}
    spec = job_spec("fedavg", 3, data=data, participation={"minSilos": 2, "roundDeadline": "90s"})
    return open_engine(directory / "aggregator", spec)


def refusal_detail(engine: RoundEngine, code: str, waited: float = 0.0) -> str:
    with pytest.raises(Problem) as caught:
        engine.is_ready(SILOS, waited)
    assert caught.value.code == code
    return caught.value.detail


def test_one_message_names_every_fault_of_every_silo_before_round_1(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "refuse")
    engine.report_readiness("silos/s0", Schema(classes=("cat", "dog", "owl", "yack")), ())
    assert not engine.is_ready(SILOS, 0)
    engine.report_readiness("silos/s1", None, UNREADABLE_FINDINGS)
    assert not engine.is_ready(SILOS, 44.9)
    engine.report_readiness("silos/s2", READY_SCHEMA, (*EMPTY_FINDINGS, *COPIES))
    detail = refusal_detail(engine, "not-ready")
    assert isinstance(engine.failure, SiloFailed)
    for said in (
        "silos/s0: SchemaDiffers: class 'yack': is not a class of the job; did you mean 'yak'?",
        "silos/s1: Unreadable: dataset: item 3 is torn; mend it",
        "silos/s2: NoTrainingExamples: training examples: fewer than two",
    ):
        assert said in str(engine.failure)
    assert "silos/s1: Unreadable: dataset: cannot be read; mend the dataset" in detail
    assert "item 3" not in detail  # which may quote a value
    assert "Duplicates" not in detail  # it is no error
    assert refusal_detail(engine, "not-ready") == detail  # whoever asks later
    assert engine.failure.reason == "DataInvalid"
    task = engine.task("silos/s0")
    assert task is not None
    assert open_task(task.sealed, TASK_KEY.verify_key).settings == {"succeeded": False}
    status = StatusSource(engine, {}, {}).status("").document()
    told = [(one["silo"], one["severity"], one["code"]) for one in status["findings"]]
    assert told == [
        ("silos/s0", "error", "SchemaDiffers"),
        ("silos/s1", "error", "Unreadable"),
        ("silos/s2", "error", "NoTrainingExamples"),
        ("silos/s2", "warning", "Duplicates"),
    ]


def test_silos_that_do_not_tell_are_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "refuse")
    engine.report_readiness("silos/s0", None, UNREADABLE_FINDINGS)
    assert not engine.is_ready({"silos/s0"}, 4.4)  # nobody else was heard from
    assert not engine.is_ready(SILOS, 44.9)
    assert "silos/s0: Unreadable" in refusal_detail(engine, "not-ready", 45.0)


def test_a_silo_that_cannot_answer_is_not_waited_for(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "refuse")
    for silo in SILOS[:2]:
        engine.report_readiness(silo, READY_SCHEMA, COPIES)
    assert not engine.is_ready(SILOS, 0)
    engine.fail("silos/s2", "r00001-train-s2", "PolicyRefused", "not permitted")
    assert engine.is_ready(SILOS, 0)


def test_once_the_job_has_begun_an_error_ends_nothing(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "refuse")
    for silo in SILOS:
        engine.report_readiness(silo, READY_SCHEMA, ())
    assert engine.is_ready(SILOS, 0)
    for again in (engine, engine_of(tmp_path, "refuse")):
        again.report_readiness("silos/s1", READY_SCHEMA, EMPTY_FINDINGS)
        assert again.is_ready(SILOS, 0)
        assert again.failure is None
        assert [one.code for one in again.findings] == ["NoTrainingExamples"]


def test_report_waits_for_nobody_and_goes_on(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "report")
    engine.report_readiness("silos/s1", None, UNREADABLE_FINDINGS)
    assert engine.is_ready(SILOS, 0)
    assert [(one.silo, one.code) for one in engine.findings] == [("silos/s1", "Unreadable")]
    spec = job_spec("fedavg", 3, data={"check": "report", "classes": list(NAMES)})
    drive(engine, local_silos(tmp_path, synthetic_runners(spec)))
    assert engine.result is not None


def test_a_difference_of_names_ends_the_job_also_where_findings_do_not(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "report")
    engine.report_readiness("silos/s0", Schema(classes=("cat", "dog", "owl", "yack")), ())
    assert "silo silos/s0: class 'yack'" in refusal_detail(engine, "schema-mismatch", 90.0)


def test_what_was_told_outlives_a_restart_and_is_forgotten_on_resuming(tmp_path: Path) -> None:
    first = engine_of(tmp_path, "refuse")
    first.report_readiness("silos/s0", READY_SCHEMA, COPIES)
    first.report_readiness("silos/s1", None, UNREADABLE_FINDINGS)
    again = engine_of(tmp_path, "refuse")
    assert again.findings == first.findings
    again.report_readiness("silos/s1", READY_SCHEMA, ())  # mended, and its trainer started again
    assert not again.is_ready(SILOS, 0)
    again.report_readiness("silos/s2", READY_SCHEMA, ())
    assert again.is_ready(SILOS, 0)
    again.forget_failures()
    assert again.findings == ()
    assert engine_of(tmp_path, "refuse").findings == ()


def test_another_file_is_refused(tmp_path: Path) -> None:
    path, data = tmp_path / "readiness.json", job_spec("fedavg", 1, data={"check": "refuse"}).data
    ReadinessCheck(path, data).report("silos/s0", COPIES)
    path.write_text(path.read_text().replace("9", "8", 1))
    with pytest.raises(FileDamaged, match="remove it: silos tell theirs"):
        ReadinessCheck(path, data)


def test_a_resumed_job_forgets_the_names_that_were_wrong(tmp_path: Path) -> None:
    """A silo that announces first must not be told of what another one has mended since."""
    engine = engine_of(tmp_path, "report")
    engine.announce("silos/s0", Schema(classes=("cat", "dog", "owl", "yack")))
    engine.forget_failures()
    engine.announce("silos/s1", READY_SCHEMA)
    assert engine.schemata_agree(SILOS, 90.0)


def test_every_item_of_a_test_set_is_read_before_a_job_that_refuses_faults(tmp_path: Path) -> None:
    np.savez(tmp_path / "held.npz", images=np.full((4, 2), np.inf), labels=np.arange(4), classes=NAMES)
    held = {"name": "held", "loader": "npz", "config": {"path": "held.npz", "inMemory": False}}

    def open_test_set(check: str) -> GlobalEvaluation:
        data = {"check": check, "classes": list(NAMES), "inputShape": [2]}
        scored, at = {"testDataset": "held"}, {"datasets": [held]}
        return GlobalEvaluation(job_spec("fedavg", 3, data=data, evaluation=scored, aggregator=at), tmp_path)

    assert open_test_set("report").schema.classes == NAMES
    with pytest.raises(DataInvalid, match=r"^dataset 'held': item 0: features contain inf; remove or mend"):
        open_test_set("refuse")
