"""What a closed round has left goes after the next tasks are out, and always before space is needed again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from tests.federate import LocalSilo, job_spec, local_silos, model_of, open_engine
from tests.unit.engine.synthetic import synthetic_runners

SPEC = job_spec("fedavg", 2, rounds=2)


@pytest.fixture
def closed_round(tmp_path: Path) -> tuple[RoundEngine, list[LocalSilo]]:
    """A job whose first round has closed."""
    engine = open_engine(tmp_path / "aggregator", SPEC)
    silos = local_silos(tmp_path, synthetic_runners(SPEC))
    for silo in silos:
        silo.answer(engine)
    return engine, silos


def updates(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*.update"))


def test_tasks_are_out_before_anything_is_removed(
    closed_round: tuple[RoundEngine, list[LocalSilo]], tmp_path: Path
) -> None:
    engine, _ = closed_round
    before = updates(tmp_path / "aggregator")
    assert len(before) == 2
    blobs = set((tmp_path / "aggregator" / "blobs").iterdir())
    assert engine.settle()
    task = engine.task("silos/s0")
    assert task is not None and task.id == "r00002-train-s0"
    assert updates(tmp_path / "aggregator") == before
    engine.sweep()
    assert updates(tmp_path / "aggregator") == []
    assert blobs.isdisjoint((tmp_path / "aggregator" / "blobs").iterdir())
    assert engine.current_exchange is not None
    assert all(
        (blob := engine.blob(digest)) is not None and blob.exists()
        for digest in engine.current_exchange.blobs
    )


def test_a_process_that_ends_first_leaves_it_to_the_next(
    closed_round: tuple[RoundEngine, list[LocalSilo]], tmp_path: Path
) -> None:
    engine, _ = closed_round
    engine.settle()
    again = open_engine(tmp_path / "aggregator", SPEC)
    assert updates(tmp_path / "aggregator") == []
    assert again.current_exchange is not None
    assert {
        path.name for path in (tmp_path / "aggregator" / "blobs").iterdir()
    } == again.current_exchange.blobs


def test_a_caller_that_never_sweeps_does_not_gather_rounds(
    closed_round: tuple[RoundEngine, list[LocalSilo]], tmp_path: Path
) -> None:
    engine, silos = closed_round
    while not engine.ended:
        for silo in silos:
            silo.answer(engine)
        assert len({name[:6] for name in updates(tmp_path / "aggregator")}) <= 2
        engine.settle()
    assert len({name[:6] for name in updates(tmp_path / "aggregator")}) == 1
    engine.sweep()
    assert updates(tmp_path / "aggregator") == []


def test_a_closed_rounds_updates_make_room_for_the_next_on_a_full_disk(
    closed_round: tuple[RoundEngine, list[LocalSilo]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of a round is stored, and then there is no space for the next one while the updates are there."""
    engine, silos = closed_round
    made: list[Path] = []

    def fail_on_full_disk(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "make-directory" and updates(tmp_path / "aggregator"):
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(step.path)
        perform()

    monkeypatch.setattr(durable, "intercept", fail_on_full_disk)
    with pytest.raises(OSError, match="No space left"):
        engine.settle()
    assert engine.current_exchange is None and not engine.ended
    assert engine.settle()
    monkeypatch.undo()
    while not engine.ended:
        for silo in silos:
            silo.answer(engine)
        engine.settle()
    undisturbed = open_engine(tmp_path / "other", SPEC)
    others = local_silos(tmp_path / "others", synthetic_runners(SPEC))
    while not undisturbed.ended:
        for silo in others:
            silo.answer(undisturbed)
        undisturbed.settle()
    found, expected = model_of(engine), model_of(undisturbed)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_a_closed_rounds_updates_make_room_when_the_directory_is_opened_again(
    closed_round: tuple[RoundEngine, list[LocalSilo]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended while the disk was too full for the next exchange."""
    engine, _ = closed_round

    def fail_on_full_disk(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "make-directory" and updates(tmp_path / "aggregator"):
            raise OSError(errno.ENOSPC, "No space left on device")
        perform()

    monkeypatch.setattr(durable, "intercept", fail_on_full_disk)
    with pytest.raises(OSError, match="No space left"):
        engine.settle()
    again = open_engine(tmp_path / "aggregator", SPEC)
    task = again.task("silos/s0")
    assert task is not None and task.id == "r00002-train-s0"


def test_a_model_that_silos_score_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tmp_path / "aggregator", job_spec("fedavg", 1, evaluation={"every": 1}))
    silos = local_silos(tmp_path, synthetic_runners(job_spec("fedavg", 1, evaluation={"every": 1})))
    for silo in silos:
        silo.answer(engine)
    steps: list[DiskStep] = []

    def record(step: DiskStep, perform: Callable[[], None]) -> None:
        steps.append(step)
        perform()

    monkeypatch.setattr(durable, "intercept", record)
    engine.settle()
    task = engine.task("silos/s0")
    assert task is not None and task.id == "r00001-evaluate-s0"
    blobs = tmp_path / "aggregator" / "blobs"
    assert [step.operation for step in steps if step.path == blobs or step.path.parent == blobs] == [
        "create",
        "sync",
        "rename",
        "sync-directory",
    ]
