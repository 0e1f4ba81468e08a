"""A federation as those see it who watch it: metrics while a round is open, and logs to the end."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.site import Process, Site, federation, wait_until
from tests.metrics_page import documented_metrics
from tests.pages import runs
from tests.ports import free_port
from tests.scraping import Scrape, scrape
from tests.terminal import Terminal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

JOB = {"job_namespace": "federation", "job_name": "attacked"}
NORTH = {**JOB, "silo": "north"}

DIGITS = {"classes": 10, "inputShape": [8, 8]}
JSON = ("--log-format", "json")


@dataclass(frozen=True)
class WatchedJob:
    """What was served while south's trainer was held up in round 1, and the logs of all when the job was over."""

    site: Site
    began: float
    aggregator: Scrape
    guard: Scrape
    logs: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def watched_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedJob]:
    site = Site(
        tmp_path_factory.mktemp("job"), federation(rounds=2, data=DIGITS, output={"tensorboard": True})
    )
    began = time.time()
    ports = {name: free_port() for name in ("aggregator", "guard")}
    started: dict[str, Process] = {}
    with ExitStack() as stack:

        def start(name: str, process: Process) -> None:
            started[name] = process
            stack.callback(process.kill)

        start("aggregator", site.start_aggregator(more=[*JSON, "--metrics-port", str(ports["aggregator"])]))
        for silo in ("north", "south"):
            start(f"{silo}-trainer", site.trainer(silo, JSON))
        drops = [site.workdir.volume(silo).drop / "signature.json" for silo in ("north", "south")]
        wait_until(lambda: all(drop.exists() for drop in drops), "the trainers to be ready")
        os.kill(started["south-trainer"].pid, signal.SIGSTOP)
        start("north", site.guard("north", [*JSON, "--metrics-port", str(ports["guard"])]))
        start("south", site.guard("south", JSON))
        wait_until(
            lambda: reported_states(site) == {"north": "Reported", "south": "Awaited"}, "north's first answer"
        )
        wait_until(lambda: len(contact_times(scrape(ports["aggregator"]))) == 2, "a word of both guards")
        seen = scrape(ports["aggregator"]), scrape(ports["guard"])
        os.kill(started["south-trainer"].pid, signal.SIGCONT)
        assert started["aggregator"].exit_code() == 0, site.log()
        for name in ("north", "south", "north-trainer", "south-trainer"):
            assert started[name].exit_code() == 0, site.log(name)
    logs = {name: [json.loads(line) for line in site.log(name).splitlines()] for name in started}
    yield WatchedJob(site, began, *seen, logs)


def reported_states(site: Site) -> dict[str, str]:
    return {silo["name"]: silo["state"] for silo in site.status().get("silos", ())}


def contact_times(found: Scrape) -> dict[tuple[str, ...], float]:
    """When each guard was heard of last."""
    return found.values("fedsilo_silo_last_report_timestamp_seconds", **JOB)


def test_every_metric_of_the_page_is_served_and_no_other(watched_job: WatchedJob) -> None:
    assert watched_job.aggregator.declared == documented_metrics()["aggregator"]
    assert watched_job.guard.declared == documented_metrics()["guard"]


def test_an_open_round_says_who_is_awaited(watched_job: WatchedJob) -> None:
    found = watched_job.aggregator
    states = found.values("fedsilo_round_silos", **JOB)
    assert states == {("answered",): 1, ("awaited",): 1, ("failed",): 0}
    assert found.values("fedsilo_silo_awaited", **JOB) == {("north",): 0, ("south",): 1}
    assert found.value("fedsilo_round_quorum", **JOB) == 2
    elapsed, deadline = (
        found.value(f"fedsilo_round_{what}_seconds", **JOB) for what in ("elapsed", "deadline")
    )
    assert 0 < elapsed < deadline == 300
    assert set(contact_times(found)) == {("north",), ("south",)}
    assert all(watched_job.began < moment <= time.time() for moment in contact_times(found).values())
    # Models that were fetched count at once, updates when their round is complete.
    assert found.value("fedsilo_silo_bytes_total", **NORTH, direction="sent") > 0
    assert found.value("fedsilo_silo_bytes_total", **NORTH, direction="received") == 0
    assert found.value("fedsilo_round_duration_seconds_count", **JOB) == 0


def test_a_guard_counts_what_left_by_its_audit_log(watched_job: WatchedJob) -> None:
    found, log = watched_job.guard, watched_job.site.workdir.silo("north") / "audit" / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    first = next(line for line in lines if line["event"] == "departure")
    sent = found.values("fedsilo_payload_bytes_total", **NORTH, direction="sent")
    assert sent == {("model",): first["kinds"]["model"]["bytes"]}
    received = found.value("fedsilo_payload_bytes_total", **NORTH, direction="received", kind="blob")
    assert received == watched_job.aggregator.value("fedsilo_silo_bytes_total", **NORTH, direction="sent")
    assert found.value("fedsilo_audit_events_total", **NORTH, event="departure") == 1
    assert found.value("fedsilo_guard_round", **NORTH) == 1
    answered = found.value("fedsilo_guard_last_answer_timestamp_seconds", **NORTH)
    assert watched_job.began < answered <= time.time()


def test_every_line_is_one_json_object_about_the_job(watched_job: WatchedJob) -> None:
    for name, lines in watched_job.logs.items():
        assert lines, name
        about = {"namespace": "federation", "job": "attacked"}
        if name != "aggregator":
            about["silo"] = name.partition("-")[0]
        for line in lines:
            assert datetime.fromisoformat(line["time"]).utcoffset() is not None
            assert line["time"].endswith("Z")
            assert line["level"] in ("INFO", "WARNING"), line
            assert line["logger"].startswith("fedsilo")
            assert isinstance(line["message"], str)
            assert about.items() <= line.items(), (name, line)
            assert line.keys() <= {"time", "level", "logger", "message", "namespace", "job", "silo", "round"}


def test_a_line_about_a_round_says_which(watched_job: WatchedJob) -> None:
    answered = [line for line in watched_job.logs["north-trainer"] if "answered with" in line["message"]]
    assert [line["round"] for line in answered] == [1, 2, 2]
    departures = [line for line in watched_job.logs["north"] if " departure:" in line["message"]]
    assert [line["round"] for line in departures] == [1, 2, 2]
    complete = [line for line in watched_job.logs["aggregator"] if "is complete after" in line["message"]]
    assert [line["round"] for line in complete] == [1, 2]
    assert complete[0]["message"].startswith("round 1 of 2 (train) is complete after ")
    assert "2 silos answered" in complete[0]["message"]


def test_the_curves_lie_beside_the_model(watched_job: WatchedJob) -> None:
    """Tensorboard's own reader finds what the history says."""
    directory = watched_job.site.workdir.aggregator
    assert {"model.safetensors", "curves.tfevents"} <= {path.name for path in directory.iterdir()}
    found = EventAccumulator(str(directory))
    found.Reload()
    (second,) = (line for line in history(watched_job.site) if line["round"] == 2)
    assert [point.step for point in found.Scalars("training/loss")] == [1, 2]
    (score,) = found.Scalars("evaluation/accuracy")
    assert (score.step, score.value) == (2, pytest.approx(second["metrics"]["accuracy"]))
    last = found.Scalars("silos loss/north")[-1]
    assert last.value == pytest.approx(second["silos"]["silo-north/north"]["loss"])
    assert found.Scalars("bytes/south")[-1].value == second["bytes"]["silo-south/south"]


def history(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.workdir.aggregator / "history.jsonl").read_text().splitlines()]


def test_the_history_says_how_long_rounds_were_open(watched_job: WatchedJob) -> None:
    assert [line["seconds"] > 0 for line in history(watched_job.site)] == [True, True]


@pytest.mark.thorough
@runs(
    "docs/metrics.md",
    "fedsilo-aggregator ... --metrics-port 9100",
    "fedsilo-guard ... --metrics-port 9101",
)
def test_metrics_are_served_on_one_machine_when_asked_for(terminal: Terminal, tmp_path: Path) -> None:
    site = Site(tmp_path / "job", federation())
    ports = free_port(), free_port()
    aggregator, guard = terminal.commands
    arguments = [shlex.join(found) for found in (site.aggregator_arguments(), site.guard_arguments())]
    with (
        terminal.start_command(aggregator, {"...": arguments[0], "9100": str(ports[0])}),
        terminal.start_command(guard, {"...": arguments[1], "9101": str(ports[1])}),
    ):
        asked = [
            wait_until(functools.partial(served_metrics, port), f"metrics of port {port}") for port in ports
        ]
    assert asked[0].value("fedsilo_round_quorum", **JOB) == 2
    assert asked[1].declared == documented_metrics()["guard"]


def served_metrics(port: int) -> Scrape | None:
    """What is served there; None where nothing is yet."""
    try:
        return scrape(port)
    except OSError:
        return None
