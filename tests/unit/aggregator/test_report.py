"""The report into the job's status: what it says, how often, and what it does when the API server does not answer."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.conditions import ConditionType, JobPhase, SiloState
from fedsilo.api.scores import ScoresStatus, SiloScoresStatus
from fedsilo.api.status import CurvePoint, FederatedJobStatus, ModelStatus, SiloStatusEntry, condition_of
from fedsilo.engine.status import EngineStatus
from fedsilo_aggregator.report import JobGoneError, Report, aggregator_fields
from tests.paths import ROOT

STATUS = EngineStatus.model_construct(
    phase=JobPhase.RUNNING,
    conditions=(condition_of(ConditionType.RUNNING, "True", "Running", ""),),
    round=7,
    rounds=50,
    progress="7/50",
    step="train",
    silo_progress="1/2",
    round_start_time="2026-01-02T03:04:05Z",
    round_deadline="2026-01-02T03:14:05Z",
    metrics={"accuracy": 0.5, "loss": float("nan")},
    parameters=1610,
    refused={"truncated": 2},
    silos=(
        SiloStatusEntry(
            name="north",
            namespace="silo-north",
            state=SiloState.REPORTED,
            last_round=7,
            samples=10,
            bytes_sent=1234,
            update="d" * 64,
            personal_accuracy=0.912345,
        ),
        SiloStatusEntry(
            name="south",
            namespace="silo-south",
            message="it is slow",
            state=SiloState.AWAITED,
            last_round=0,
            bytes_sent=0,
        ),
    ),
    fetched={"north": 99},
)


def status(**changes: Any) -> EngineStatus:
    """The status with other values, which nobody validates."""
    return STATUS.model_copy(update=changes)


def round_status(round: int) -> EngineStatus:
    return status(round=round)


ORDER = [field.alias for field in FederatedJobStatus.model_fields.values()]


class Job:
    """A job's status that answers as it is told to.

    :ivar outcomes: what becomes of the next writes; without one, they are made.
    :ivar times: when each write was tried.
    """

    def __init__(self, outcomes: list[str] | None = None) -> None:
        self.outcomes = outcomes or []
        self.now = 0.0
        self.times: list[float] = []
        self.tried: list[int] = []
        self.status: Mapping[str, Any] = {}
        self.meanwhile: Callable[[], None] = lambda: None

    async def apply(self, status: Mapping[str, Any]) -> None:
        self.times.append(self.now)
        self.tried.append(status["round"])
        outcome = self.outcomes.pop(0) if self.outcomes else "made"
        self.meanwhile()
        await asyncio.sleep(0)
        if outcome == "gone":
            raise JobGoneError("job federation/digits")
        if outcome != "refused":
            self.status = status
        if outcome != "made":
            raise ConnectionError("reset by peer" if outcome == "lost answer" else "403 forbidden")

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def test_the_status_has_the_fields_that_the_aggregator_owns_and_no_other() -> None:
    applied = aggregator_fields(STATUS, "digits-1234")
    assert applied == {
        "round": 7,
        "rounds": 50,
        "progress": "7/50",
        "siloProgress": "1/2",
        "step": "train",
        "roundStartTime": "2026-01-02T03:04:05Z",
        "roundDeadline": "2026-01-02T03:14:05Z",
        "metrics": {"accuracy": 0.5},
        "parameters": 1610,
        "refused": {"truncated": 2},
        "silos": [
            {
                "name": "north",
                "state": "Reported",
                "lastRound": 7,
                "samples": 10,
                "bytesSent": 1234,
                "update": "d" * 64,
                "personalAccuracy": 0.9123,
            },
            {"name": "south", "state": "Awaited", "lastRound": 0, "bytesSent": 0},
        ],
    }
    FederatedJobStatus.model_validate(applied)
    assert list(applied) == [name for name in ORDER if name in applied]
    json.dumps(applied, allow_nan=False)


def test_figures_are_rounded_for_people_and_counts_are_not() -> None:
    figures = {"accuracy": 0.9665738161559888, "loss": 0.006971447179020185}
    applied = aggregator_fields(
        status(metrics=figures, training={"loss": 12345.678}, refused={"truncated": 123456}), None
    )
    assert applied["metrics"] == {"accuracy": 0.9666, "loss": 0.006971}
    assert applied["training"] == {"loss": 12350.0}
    assert applied["refused"] == {"truncated": 123456}


def test_a_curve_has_rounded_figures_and_no_more_of_them_than_the_schema_allows() -> None:
    many = {f"m{number:02}": 1 / 3 for number in range(21)} | {"bad": float("inf")}
    points = (
        CurvePoint.model_construct(round=1, metrics=many),
        CurvePoint(round=2, training={"loss": 2.0}),
    )
    applied = aggregator_fields(status(curve=points), None)
    assert applied["curve"] == [
        {"round": 1, "metrics": {f"m{number:02}": 0.3333 for number in range(20)}},
        {"round": 2, "training": {"loss": 2.0}},
    ]
    FederatedJobStatus.model_validate(applied)


def test_at_the_end_the_status_says_where_the_model_is() -> None:
    model = ModelStatus(path="model.safetensors", sha256="a" * 64)
    ended = status(step=None, round_start_time=None, round_deadline=None, model=model)
    applied = aggregator_fields(ended, "digits-1234")
    assert applied["model"] == {"claim": "digits-1234", "path": "model.safetensors", "sha256": "a" * 64}
    assert not applied.keys() & {"step", "roundStartTime", "roundDeadline"}
    assert "claim" not in aggregator_fields(ended, None)["model"]
    FederatedJobStatus.model_validate(applied)


async def test_the_latest_report_is_written_at_most_once_a_second() -> None:
    job = Job()
    report = Report(job, None, job.sleep)
    async with report.running():
        for number in range(1, 6):
            report.publish(round_status(number))
            report.publish(round_status(10 * number))
            for _ in range(5):
                report.publish(round_status(10 * number))
                await asyncio.sleep(0)
        assert await report.wait_until_written(1) is None
    assert job.status["round"] == 50
    assert job.tried[0] == 10, "what was overtaken is never written"
    assert all(later - earlier >= 1 for earlier, later in zip(job.times, job.times[1:], strict=False))


async def test_what_did_not_change_is_not_written_again() -> None:
    job = Job()
    report = Report(job, None, job.sleep)
    async with report.running():
        for seconds in range(540, 0, -1):
            report.publish(status(fetched={"north": seconds}))
            await asyncio.sleep(0)
        assert await report.wait_until_written(1) is None
    assert job.tried == [7]


async def test_an_api_server_that_is_away_is_asked_again_with_growing_pauses() -> None:
    job = Job(["refused"] * 8)
    report = Report(job, None, job.sleep)
    async with report.running():
        report.publish(round_status(1))
        await asyncio.sleep(0)
        report.publish(round_status(2))
        assert await report.wait_until_written(1) is None
    assert job.status["round"] == 2
    pauses = [later - earlier for earlier, later in zip(job.times, job.times[1:], strict=False)]
    for pause, most in zip(pauses, [1, 2, 4, 8, 15, 15, 15], strict=False):
        assert most / 2 <= pause <= most


async def test_a_report_that_changes_while_it_is_written_is_followed_by_the_new_one() -> None:
    job = Job()
    report = Report(job, None, job.sleep)
    job.meanwhile = lambda: report.publish(round_status(2)) if len(job.tried) == 1 else None
    async with report.running():
        report.publish(round_status(1))
        assert await report.wait_until_written(1) is None
    assert job.tried == [1, 2]


async def test_the_end_does_not_wait_for_ever() -> None:
    job = Job(["refused"] * 10_000_000)
    report = Report(job, None, job.sleep)
    async with report.running():
        report.publish(round_status(1))
        assert await report.wait_until_written(0.05) == "ConnectionError: 403 forbidden"


async def test_a_job_that_is_gone_is_left_alone() -> None:
    job = Job(["made", "gone"])
    report = Report(job, None, job.sleep)
    async with report.running():
        report.publish(round_status(1))
        await asyncio.sleep(0.01)
        report.publish(round_status(2))
        assert await report.wait_until_written(1) is None
        report.publish(round_status(3))
        assert await report.wait_until_written(1) is None
    assert job.tried == [1, 2]


outcomes = st.lists(st.sampled_from(["made", "refused", "lost answer"]), max_size=12)


@given(outcomes, st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=12))
def test_in_the_end_the_last_report_is_there(outcomes: list[str], said: list[tuple[int, int]]) -> None:
    """Whatever the API server did, and although an answer that was lost leaves open what is there."""
    job = Job(outcomes)
    report = Report(job, None, job.sleep)

    async def body() -> None:
        async with report.running():
            for round, pause in said:
                report.publish(round_status(round))
                for _ in range(pause):
                    await asyncio.sleep(0)
            assert await report.wait_until_written(5) is None

    asyncio.run(body())
    assert job.status["round"] == said[-1][0]


@pytest.mark.parametrize("figures", [0, 250])
def test_no_more_figures_than_the_schema_allows(figures: int) -> None:
    metrics = {f"m{number:03}": float(number) for number in range(figures)}
    FederatedJobStatus.model_validate(aggregator_fields(status(metrics=metrics), None))


def test_the_admission_policy_admits_every_field_of_a_report() -> None:
    policy = next(yaml.safe_load_all((ROOT / "manifests/admission/aggregator-reports.yaml").read_text()))
    variables = {item["name"]: item["expression"] for item in policy["spec"]["variables"]}
    every = {field.alias or name for name, field in FederatedJobStatus.model_fields.items()}
    operators = {"observedGeneration", "phase", "conditions", "startTime", "completionTime", "gang"}
    assert set(ast.literal_eval(variables["fields"])) == every - operators


def test_scores_by_silo_fit_into_the_object_that_an_api_server_takes() -> None:
    own = SiloScoresStatus(name="a", examples=3, metrics={f"m{number}": 1 / 3 for number in range(9)})
    many = tuple(own.model_copy(update={"name": f"s{number}"}) for number in range(1000))
    scores = ScoresStatus(round=1, examples=3000, scored=1000, asked=1000, by_silo=many)
    status = EngineStatus(phase="Running", scores=scores, metrics={"m8": 0.5}, score="m8")
    found = aggregator_fields(status, None)["scores"]
    assert {len(silo["metrics"]) for silo in found["bySilo"]} == {4}
    assert found["bySilo"][0]["metrics"].keys() == {"m0", "m1", "m2", "m8"}, (
        "what the job is judged by is there"
    )
    assert found["bySilo"][0]["metrics"]["m0"] == 0.3333
