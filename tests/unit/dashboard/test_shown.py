"""A local run as the dashboard shows it, from the files that its processes write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.loading import JobManifest, load
from fedsilo.api.status import FederatedJobStatus
from fedsilo.dashboard.scene import Scene
from fedsilo.dashboard.view import overview, page
from fedsilo.local.progress import Progress
from fedsilo.local.shown import Shown
from fedsilo.local.workdir import Workdir
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


def status(phase: str = "Running", **more: Any) -> dict[str, Any]:
    members = [
        {
            "namespace": f"silo-{name}",
            "name": name,
            "state": state,
            "lastRound": 1,
            "samples": 9,
            "bytes": 1234,
            "update": "a" * 64,
            "fetched": 0,
            "message": "",
        }
        for name, state in (("north", "Reported"), ("east", "Awaited"))
    ]
    return {
        "phase": phase,
        "reason": phase,
        "message": "",
        "round": 1,
        "rounds": 2,
        "step": "train",
        "roundStartTime": "2026-01-02T03:04:05Z",
        "roundDeadline": "2026-01-02T03:07:05Z",
        "metrics": {"accuracy": 0.5},
        "training": {"loss": 1.0},
        "parameters": 1210,
        "refused": {},
        "model": None,
        "silos": members,
    } | more


def seen(shown: Shown) -> dict[str, Any]:
    """The page of the job, whose status is also one that a cluster would take."""
    FederatedJobStatus.model_validate(
        {key: value for key, value in shown.job["status"].items() if key not in ("silos", "conditions")}
    )
    scene = Scene(
        "machine", [shown.job], events=shown.events, receipts={shown.job["metadata"]["uid"]: shown.receipts}
    )
    assert overview(scene)["count"] == 1
    found = page(scene, "federation", "digits")
    assert found is not None
    return found


def test_a_job_that_waits_for_its_turn(federation: JobManifest) -> None:
    found = seen(Shown(federation, Clock().now))
    assert (found["state"], found["waiting"]["text"]) == ("Pending", "Waits for its aggregator")
    assert found["waiting"]["message"] == "It begins when the jobs before it have ended."
    assert [silo["name"] for silo in found["members"]] == ["north", "east"]


def test_a_run_from_its_start_to_its_end(federation: JobManifest, tmp_path: Path) -> None:
    progress, shown = Progress(federation, Workdir(tmp_path / "run")), Shown(federation, Clock().now)
    assert shown.update(progress)
    assert not shown.update(progress)
    assert seen(shown)["waiting"]["message"] == "starting aggregator, guards and trainers"
    progress.status, progress.rounds = status(), [line(1, missing=["silo-east/east"])]
    assert shown.update(progress)
    found = seen(shown)
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
    model = {"path": "model.safetensors", "sha256": "c" * 64}
    progress.status = status("Succeeded", round=2, model=model, step=None)
    progress.rounds = [*progress.rounds, line(2)]
    shown.end(progress, stopped=False)
    found = seen(shown)
    assert (found["state"], found["started"], found["receipts"]["model"]) == ("Complete", began, model)
    assert found["receipts"]["count"] == 4
    assert found["ended"] is not None


def test_an_aggregator_that_ended_without_a_word_has_failed(federation: JobManifest, tmp_path: Path) -> None:
    progress, shown = Progress(federation, Workdir(tmp_path / "run")), Shown(federation, Clock().now)
    progress.status = status()
    progress.note("aggregator: ended with exit code 1; see the log")
    shown.end(progress, stopped=False)
    found = seen(shown)
    assert (found["state"], found["waiting"]["reason"]) == ("Failed", "AggregatorLost")
    assert found["events"][0]["message"] == "aggregator: ended with exit code 1; see the log"


def test_an_interrupted_run_says_so(federation: JobManifest, tmp_path: Path) -> None:
    progress, shown = Progress(federation, Workdir(tmp_path / "run")), Shown(federation, Clock().now)
    progress.status = status()
    shown.end(progress, stopped=True)
    found = seen(shown)
    assert (found["state"], found["waiting"]["message"]) == ("Suspended", "The run was interrupted.")
