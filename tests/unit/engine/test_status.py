"""The status of the aggregator: the times of a round do not move, and silos are counted in every state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsilo.api.status import FederatedJobStatus
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.status import EngineStatus, StatusSource
from fedsilo.engine.status_sinks import StatusFile
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from tests.federate import drive, job_spec, local_silos, open_engine, runners, skewed_silos

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> datetime:
        return self.time


class WatchedJob:
    """A job of two silos and two rounds, the silos' answers, and the status that is published of it."""

    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        silos = skewed_silos(root, {"s0": (0, 1, 2, 3), "s1": (0, 1, 2, 3)})
        spec = job_spec("fedavg", 2, rounds=2, participation={"roundDeadline": "10m"})
        self.root, self.spec = root, spec
        self.engine = self.open()
        self.silos = local_silos(root, runners(spec, silos, root))
        self.source = self.watch(self.engine)

    def open(self) -> RoundEngine:
        return open_engine(self.root / "aggregator", self.spec)

    def watch(self, engine: RoundEngine) -> StatusSource:
        return StatusSource(engine, Counter(), Counter(), self.clock.now)

    def status_after(self, seconds: float, served: float | None = None) -> EngineStatus:
        """The status when so much time went by, of which so much served the round."""
        self.clock.time += timedelta(seconds=seconds)
        self.engine.wait(seconds if served is None else served)
        return self.source.status("")


@pytest.fixture
def watched_job(tmp_path: Path) -> WatchedJob:
    return WatchedJob(tmp_path)


def times(status: EngineStatus) -> tuple[str | None, str | None]:
    return status.round_start_time, status.round_deadline


def test_only_the_last_status_waits_for_the_disk(
    watched_job: WatchedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def note(step: DiskStep, perform: Callable[[], None]) -> None:
        steps.append(step.operation)
        perform()

    file, status = StatusFile(tmp_path / "status.json"), watched_job.status_after(1)
    with monkeypatch.context() as noting:
        noting.setattr(durable, "intercept", note)
        file.publish(status)
    assert steps == ["create", "rename"]
    assert json.loads(file.path.read_text())["phase"] == "Running"
    drive(watched_job.engine, watched_job.silos)
    steps.clear()
    monkeypatch.setattr(durable, "intercept", note)
    file.publish(watched_job.source.status(""))
    assert steps == ["create", "sync", "rename", "sync-directory"]
    assert json.loads(file.path.read_text())["phase"] == "Complete"


def test_the_times_of_a_round_do_not_move_while_it_is_served(watched_job: WatchedJob) -> None:
    for _ in range(500):
        status = watched_job.status_after(0.25, served=0.249)
        assert times(status) == ("2026-01-02T03:04:05Z", "2026-01-02T03:14:05Z")


def test_the_next_round_has_its_own_times(watched_job: WatchedJob) -> None:
    watched_job.status_after(60)
    for silo in watched_job.silos:
        silo.answer(watched_job.engine)
    assert watched_job.source.status("").silo_progress == "2/2"
    watched_job.engine.settle()
    status = watched_job.source.status("")
    assert times(status) == ("2026-01-02T03:05:05Z", "2026-01-02T03:15:05Z")
    assert (status.round, status.silo_progress) == (1, "0/2")


def test_a_deadline_moves_when_silos_could_not_be_served(watched_job: WatchedJob) -> None:
    watched_job.status_after(60)
    status = watched_job.status_after(120, served=0)
    assert times(status) == ("2026-01-02T03:04:05Z", "2026-01-02T03:16:05Z")


def test_a_restarted_aggregator_gives_the_round_the_time_that_is_left(watched_job: WatchedJob) -> None:
    watched_job.status_after(60)
    watched_job.clock.time += timedelta(hours=5)
    status = watched_job.watch(watched_job.open()).status("")
    assert times(status) == ("2026-01-02T08:04:05Z", "2026-01-02T08:14:05Z")


def test_the_end_has_no_times_and_counts_the_silos_of_the_last_round(watched_job: WatchedJob) -> None:
    drive(watched_job.engine, watched_job.silos)
    for engine in (watched_job.engine, watched_job.open()):
        status = watched_job.watch(engine).status("")
        assert times(status) == (None, None)
        assert (status.round, status.silo_progress, status.step) == (2, "2/2", None)
        assert status.model is not None
        assert status.model.path == "model.safetensors"


def test_curve_and_receipts_are_those_of_the_history(watched_job: WatchedJob) -> None:
    drive(watched_job.engine, watched_job.silos)
    status = watched_job.watch(watched_job.open()).status("")
    last = watched_job.engine.history()[-1]
    assert [point.round for point in status.curve] == [1, 2]
    assert status.curve[-1].training == last["training"]
    assert status.parameters == sum(array.size for array in watched_job.engine.state.tree("model").values())
    updates = {silo.name: silo.update for silo in status.silos}
    assert updates == {name: last["updates"][f"r00002-train-{name}"] for name in ("s0", "s1")}


def test_a_failed_job_has_no_deadline_any_more(watched_job: WatchedJob) -> None:
    watched_job.silos[0].answer(watched_job.engine)
    failing = watched_job.silos[1].reference
    watched_job.engine.fail(failing, f"r00001-train-{failing.rpartition('/')[2]}", "DataInvalid", "no file")
    status = watched_job.source.status("")
    assert status.phase == "Failed"
    assert times(status) == (None, None)
    assert status.silo_progress == "1/2"


def test_the_status_is_one_of_a_federated_job(watched_job: WatchedJob) -> None:
    """Also the API's own type takes it, but for what only the aggregator's directory says."""
    watched_job.source = StatusSource(
        watched_job.engine, {"truncated": 2}, {"default/s0": 5}, watched_job.clock.now
    )
    for finish in (False, True):
        if finish:
            drive(watched_job.engine, watched_job.silos)
        document = json.loads(json.dumps(watched_job.source.status("the disk is full").document()))
        assert document.pop("fetched") == {"s0": 5}
        assert FederatedJobStatus.model_validate(document).document() == document
        assert document["phase"] == ("Complete" if finish else "Running")
        (condition,) = document["conditions"]
        assert condition == {
            "type": document["phase"],
            "status": "True",
            "reason": "Succeeded" if finish else "Running",
            "message": "the disk is full",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }


def test_no_figure_and_no_message_is_too_much_for_a_status(watched_job: WatchedJob) -> None:
    watched_job.silos[0].answer(watched_job.engine)
    watched_job.engine.settle()
    assert watched_job.engine.current_exchange is not None
    current = watched_job.engine.current_exchange
    current.round = current.round.fail(current.round.silos[1], "x" * 40_000)
    status = watched_job.source.status("x" * 40_000)
    assert max(len(silo.message or "") for silo in status.silos) == 40_000


def test_a_history_with_infinite_figures_has_a_status_in_json(watched_job: WatchedJob) -> None:
    drive(watched_job.engine, watched_job.silos)
    last = watched_job.engine.history()[-1]
    last["metrics"] |= {"accuracy": 0.5, "personal_accuracy_spread": float("inf")}
    last["training"] = {"loss": float("nan")}
    last["personal"] = {watched_job.silos[0].reference: float("inf")}
    document = watched_job.watch(watched_job.engine).status("").document()
    json.dumps(document, allow_nan=False)
    assert document["metrics"]["accuracy"] == 0.5
    assert document["score"] == "accuracy=0.5"
    assert "personal_accuracy_spread" not in document["metrics"]
