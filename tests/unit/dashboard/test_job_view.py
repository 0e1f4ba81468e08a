"""A local run as the dashboard shows it, from the files that its processes write."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.conditions import ConditionType, JobPhase, SiloState
from fedsilo.api.loading import JobManifest, load
from fedsilo.api.status import (
    CurvePoint,
    FederatedJobStatus,
    ModelStatus,
    SiloStatusEntry,
    condition_of,
)
from fedsilo.dashboard.snapshot import JobsSnapshot
from fedsilo.dashboard.view import overview, page
from fedsilo.engine.status import EngineStatus
from fedsilo.local.job_view import JobView
from fedsilo.local.progress import RunProgress
from fedsilo.local.workdir import RunDirectory
from tests.integration.local.manifest import silos, write

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time


@pytest.fixture
def federation(tmp_path: Path) -> JobManifest:
    return load(write(tmp_path / "digits.yaml", silos("north", "east")))


def line(number: int, **more: Any) -> dict[str, Any]:
    updates = {f"r{number:05d}-train-{silo}": digit * 64 for silo, digit in (("north", "a"), ("east", "b"))}
    facts = {"round": number, "phase": "train", "updates": updates, "bytes": {}, "failed": {}, "missing": []}
    return facts | {"samples": {}, "training": {"loss": 1.0}, "metrics": {"accuracy": 0.5}} | more


def status(phase: JobPhase = JobPhase.RUNNING, **more: Any) -> dict[str, Any]:
    """A status as its aggregator has written it."""
    states = {"north": SiloState.REPORTED, "east": SiloState.AWAITED}
    condition = condition_of(ConditionType(phase), "True", phase, "", "2026-01-02T03:04:04Z")
    found = EngineStatus(
        phase=phase,
        conditions=(condition,),
        round=1,
        rounds=2,
        step="train",
        round_start_time="2026-01-02T03:04:05Z",
        round_deadline="2026-01-02T03:07:05Z",
        metrics={"accuracy": 0.5},
        training={"loss": 1.0},
        curve=(CurvePoint(round=1, metrics={"accuracy": 0.5}, training={"loss": 1.0}),),
        parameters=1210,
        silos=tuple(
            SiloStatusEntry(
                namespace=f"silo-{name}",
                name=name,
                state=state,
                last_round=1,
                samples=9,
                bytes_sent=1234,
                update="a" * 64,
            )
            for name, state in states.items()
        ),
        fetched={"north": 5},
    )
    document: dict[str, Any] = json.loads(json.dumps(found.model_copy(update=more).document()))
    return document


def seen_page(view: JobView) -> dict[str, Any]:
    """The page of the job, whose status is also one that a cluster would take."""
    facts = {key: value for key, value in view.job["status"].items() if key != "fetched"}
    FederatedJobStatus.model_validate(json.loads(json.dumps(facts)))
    snapshot = JobsSnapshot(
        "machine", [view.job], events=view.events, receipts={view.job["metadata"]["uid"]: view.receipts}
    )
    assert overview(snapshot)["count"] == 1
    found = page(snapshot, "federation", "digits")
    assert found is not None
    return found


def test_a_job_that_waits_for_its_turn(federation: JobManifest) -> None:
    found = seen_page(JobView(federation, Clock().now))
    assert (found["state"], found["waiting"]["text"]) == ("Pending", "Waits for its aggregator")
    assert found["waiting"]["message"] == "It begins when the jobs before it have ended."
    assert [silo["name"] for silo in found["members"]] == ["north", "east"]


def test_a_run_from_its_start_to_its_end(federation: JobManifest, tmp_path: Path) -> None:
    progress, view = RunProgress(federation, RunDirectory(tmp_path / "run")), JobView(federation, Clock().now)
    assert view.update(progress)
    assert not view.update(progress)
    assert seen_page(view)["waiting"]["message"] == "starting aggregator, guards and trainers"
    progress.status, progress.rounds = status(), [line(1, missing=["silo-east/east"])]
    assert view.update(progress)
    found = seen_page(view)
    assert (found["state"], found["waiting"]["text"]) == ("Running", "Waits for east")
    assert (found["waiting"]["since"], found["waiting"]["until"]) == (
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:07:05Z",
    )
    assert found["curves"][0] == {"name": "accuracy", "group": "score", "points": [(1, 0.5)]}
    assert [item["digest"][0] for item in found["receipts"]["updates"]] == ["b", "a"]
    assert [event["message"] for event in found["events"]] == ["Round 1 closed without silo-east/east."]
    assert found["contract"]["sentence"] == "This job receives: models of 1,210 parameters."
    began = found["started"]
    model = ModelStatus(path="model.safetensors", sha256="c" * 64)
    progress.status = status(JobPhase.COMPLETE, round=2, model=model, step=None)
    progress.rounds = [*progress.rounds, line(2)]
    view.end(progress, stopped=False)
    found = seen_page(view)
    assert (found["state"], found["started"]) == ("Complete", began)
    assert found["receipts"]["model"] == model.model_dump(exclude_none=True)
    assert found["receipts"]["count"] == 4
    assert found["ended"] == "2026-01-02T03:04:04Z"


def test_an_aggregator_that_ended_without_a_word_has_failed(federation: JobManifest, tmp_path: Path) -> None:
    progress, view = RunProgress(federation, RunDirectory(tmp_path / "run")), JobView(federation, Clock().now)
    progress.status = status()
    progress.note("aggregator: ended with exit code 1; see the log")
    view.end(progress, stopped=False)
    found = seen_page(view)
    assert (found["state"], found["waiting"]["reason"]) == ("Failed", "AggregatorLost")
    assert found["events"][0]["message"] == "aggregator: ended with exit code 1; see the log"


def test_an_interrupted_run_reports_it(federation: JobManifest, tmp_path: Path) -> None:
    progress, view = RunProgress(federation, RunDirectory(tmp_path / "run")), JobView(federation, Clock().now)
    progress.status = status()
    view.end(progress, stopped=True)
    found = seen_page(view)
    assert (found["state"], found["waiting"]["message"]) == ("Suspended", "The run was interrupted.")
