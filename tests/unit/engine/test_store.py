"""A job goes on from whatever a crash or a full disk leaves, to the very same model."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.store import JobProgress, JobStore
from fedsilo.errors import WorkdirConflict
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.methods.state import State
from tests.federate import drive, federate, job_spec, local_silos, open_engine
from tests.unit.engine.synthetic import synthetic_runners

SPEC = job_spec("fedavg", 2, rounds=3, evaluation={"every": 2})

Outcome = tuple[str, list[dict[str, Any]]]


def outcome(engine: RoundEngine) -> Outcome:
    """Digest of the model, and the history less the digests of updates, which are signed with keys of the run."""
    assert engine.result is not None
    history = [{k: v for k, v in line.items() if k != "updates"} for line in engine.history()]
    return engine.result.sha256, history


@contextmanager
def at_every_flush_below(directory: Path, call: Callable[[], None]) -> Iterator[None]:
    """Call when a file or a folder below the directory is flushed, before it is known to have been."""

    def flush(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(directory):
            call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        yield


@pytest.fixture(scope="module")
def undisturbed_outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcome(federate(tmp_path_factory.mktemp("undisturbed"), SPEC, synthetic_runners(SPEC)))


def test_what_a_restart_finds_is_on_the_disk_before_anything_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died after a rename has not flushed the folder; a power cut would take the rename back."""
    silos = local_silos(tmp_path / "silos", synthetic_runners(SPEC))
    engine = open_engine(tmp_path / "aggregator", SPEC)
    task = engine.task(silos[0].reference)
    assert task is not None
    silos[0].answer(engine)
    assert engine.current_exchange is not None
    steps: list[tuple[str, str]] = []

    def note(step: DiskStep, perform: Callable[[], None]) -> None:
        steps.append((step.operation, str(step.path.relative_to(tmp_path / "aggregator"))))
        perform()

    monkeypatch.setattr(durable, "intercept", note)
    again = open_engine(tmp_path / "aggregator", SPEC)
    assert again.current_exchange is not None
    assert steps[0] == ("sync-directory", ".")
    assert (
        "sync-directory",
        str(again.current_exchange.directory.relative_to(tmp_path / "aggregator")),
    ) in steps


@pytest.mark.thorough
def test_killed_at_any_flush_the_job_ends_with_the_same_bytes(
    tmp_path: Path, undisturbed_outcome: Outcome
) -> None:
    directory, copies = tmp_path / "aggregator", list[Path]()

    def copy() -> None:
        copies.append(tmp_path / f"crash-{len(copies)}")
        shutil.copytree(directory, copies[-1])

    with at_every_flush_below(directory, copy):
        first = federate(tmp_path, SPEC, synthetic_runners(SPEC))
    assert outcome(first) == undisturbed_outcome
    assert len(copies) > 20
    for crash in copies:
        engine = open_engine(crash, SPEC)
        drive(engine, local_silos(tmp_path / f"silos-{crash.name}", synthetic_runners(SPEC)))
        assert outcome(engine) == undisturbed_outcome, crash.name
        assert not list(crash.rglob("*.tmp"))


def space_for(flushes: int) -> Callable[[], None]:
    """A disk on which so many flushes succeed, and no more."""
    left = iter(range(flushes))

    def flush() -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    return flush


def test_on_a_full_disk_settling_again_loses_and_repeats_nothing(
    tmp_path: Path, undisturbed_outcome: Outcome
) -> None:
    directory, refused = tmp_path / "aggregator", 0
    engine = open_engine(directory, SPEC)
    silos = local_silos(tmp_path, synthetic_runners(SPEC))
    while not engine.ended:
        for silo in silos:
            silo.answer(engine)
        for flushes_left in range(50):  # each try gets one step further
            with at_every_flush_below(directory, space_for(flushes_left)), suppress(OSError):
                engine.settle()
                break
            refused += 1
    assert refused > 10
    assert outcome(engine) == undisturbed_outcome


def test_a_torn_line_of_the_history_is_cut_off(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.claim("job", "a" * 64)
    store.commit(JobProgress(1, State()), {"round": 1})
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"round": 2, "upd')
    again = JobStore(tmp_path)
    assert again.load() == JobProgress(1, State())
    again.commit(JobProgress(2, State()), {"round": 2})
    assert again.history() == [{"round": 1}, {"round": 2}]


def test_each_round_has_one_line_with_what_happened_in_it(undisturbed_outcome: Outcome) -> None:
    _, history = undisturbed_outcome
    assert [line["round"] for line in history] == [1, 2, 3]
    assert [line["samples"] for line in history] == [{"silos/s0": 1, "silos/s1": 2}] * 3
    assert [line["training"] for line in history] == [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}]
    # Evaluated after round 2 and after the last: 1/1 on one sample and 1/2 on two.
    assert [line.get("metrics") for line in history] == [
        None,
        *[{"accuracy": pytest.approx(2 / 3), "loss": 2.0}] * 2,
    ]
    assert all((line["failed"], line["missing"]) == ({}, []) for line in history)


def test_only_what_is_still_needed_stays_on_disk(tmp_path: Path) -> None:
    engine = federate(tmp_path, SPEC, synthetic_runners(SPEC))
    assert engine.result is not None
    directory = tmp_path / "aggregator"
    assert len(list((directory / "blobs").iterdir())) == 1
    assert not list((directory / "open").iterdir())
    description = json.loads((directory / "model.json").read_text())
    assert description["sha256"] == engine.result.sha256
    assert [len(line["digests"]) for line in description["updates"]] == [2, 4, 4]  # evaluations included


@pytest.mark.parametrize(("job", "digest"), [("other", "a" * 64), ("job", "b" * 64)])
def test_the_directory_of_another_job_is_refused(tmp_path: Path, job: str, digest: str) -> None:
    JobStore(tmp_path).claim("job", "a" * 64)
    with pytest.raises(WorkdirConflict, match="belongs to job job with specification aaaaaaaaaaaa"):
        JobStore(tmp_path).claim(job, digest)
