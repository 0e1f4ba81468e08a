"""The thread that makes a job known: it sends all, repeats what failed, and holds up nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from fedsilo.api.conditions import JobPhase
from fedsilo.engine.record import Record
from fedsilo.engine.status import EngineStatus
from fedsilo.engine.tracking import BACKOFF, TrackingSink

RUNNING_STATUS, COMPLETE_STATUS, FAILED_STATUS = (
    EngineStatus.model_construct(phase=phase)
    for phase in (JobPhase.RUNNING, JobPhase.COMPLETE, JobPhase.FAILED)
)


class Run:
    """A run that fails so often, and takes what comes after that.

    :ivar reached: is set when it has the result.
    """

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.rounds: list[int] = []
        self.ended: list[bool] = []
        self.reached = threading.Event()

    def send(self, history: Sequence[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("connection refused\nand a traceback")
        self.rounds = [line["round"] for line in history]

    def finish(self, succeeded: bool) -> None:
        self.ended.append(succeeded)
        self.reached.set()


def history(rounds: int) -> list[dict[str, Any]]:
    return [{"round": number} for number in range(1, rounds + 1)]


def test_all_rounds_and_the_result_are_sent() -> None:
    run, lines = Run(), history(1)
    tracked = TrackingSink(run, lambda: lines)
    tracked.start()
    tracked.publish(RUNNING_STATUS)
    lines += history(3)[1:]
    tracked.publish(COMPLETE_STATUS)
    tracked.close()
    assert (run.rounds, run.ended) == ([1, 2, 3], [True])


def test_what_was_not_sent_is_said_until_it_is() -> None:
    pauses: list[float] = []
    run = Run(failures=1)
    tracked = TrackingSink(run, lambda: history(1), pause=pauses.append)
    assert tracked.output.delivered
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracked, "_pause", lambda _: None)
        assert not tracked._send()
        found = tracked.output
        assert (found.name, found.delivered) == ("mlflow", False)
        assert (
            found.message == "ConnectionError: connection refused. It is tried again until the job has ended."
        )
        assert tracked._send()
    assert tracked.output.delivered


def test_what_was_never_sent_is_said_with_its_remedy() -> None:
    tracked = TrackingSink(Run(failures=100), lambda: history(1), pause=lambda _: None)
    tracked.start()
    tracked.publish(COMPLETE_STATUS)
    tracked.close()
    tracked.close()
    assert not tracked.output.delivered
    assert "spec.output.mlflow.trackingUri" in (tracked.output.message or "")


def test_the_result_is_sent_once_where_the_job_ends_while_the_history_is_read() -> None:
    run, lines = Run(), history(1)

    def read() -> list[dict[str, Any]]:
        found = list(lines)
        if threading.current_thread().name == "tracking" and len(lines) == 1:
            lines.append({"round": 2})
            tracked.publish(COMPLETE_STATUS)
        return found

    tracked = TrackingSink(run, read)
    tracked.start()
    tracked.publish(RUNNING_STATUS)
    assert run.reached.wait(60)
    tracked.close()
    assert (run.rounds, run.ended) == ([1, 2], [True])


def test_a_failed_job_ends_its_run_so() -> None:
    run = Run()
    tracked = TrackingSink(run, lambda: history(1))
    tracked.start()
    tracked.publish(FAILED_STATUS)
    tracked.close()
    assert run.ended == [False]


def test_what_failed_is_sent_again_after_pauses_that_double_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, pauses = Run(failures=8), list[float]()
    tracked = TrackingSink(run, lambda: history(2), pause=pauses.append)
    tracked.start()
    tracked.publish(COMPLETE_STATUS)
    assert run.reached.wait(60)
    tracked.close()
    assert pauses == [BACKOFF.pause(number) for number in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [record.getMessage() for record in caplog.records] == [
        "the MLflow run could not be written: ConnectionError: connection refused; trying again"
    ]
    assert run.rounds == [1, 2]


def test_a_server_that_is_away_ends_no_job_later(caplog: pytest.LogCaptureFixture) -> None:
    """Only the job's end interrupts the pause, and then one last attempt is made."""
    run = Run(failures=1_000_000)
    tracked = TrackingSink(run, lambda: history(1))
    tracked.start()
    tracked.publish(RUNNING_STATUS)
    tracked.publish(COMPLETE_STATUS)
    tracked.close()
    assert 1_000_000 - run.failures <= 3
    assert run.ended == []
    assert caplog.records[-1].getMessage() == (
        "the MLflow run is not complete: ConnectionError: connection refused; the rest is sent when the job is resumed"
    )


def test_a_server_that_does_not_answer_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    answered = threading.Event()

    class Hanging(Run):
        @override
        def send(self, history: Sequence[Record]) -> None:
            answered.wait(60)

    tracked = TrackingSink(Hanging(), lambda: history(1))
    tracked.start()
    tracked.publish(COMPLETE_STATUS)
    tracked.close(limit=0.0)
    answered.set()
    assert "the model was not sent within 0 s" in caplog.text
