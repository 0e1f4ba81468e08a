"""An observation is interpreted once: nobody comes back to it to find out the same again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.job.state import Stage
from tests.unit.operator.job.harness import JobHarness, state_of
from tests.unit.operator.job.objects import NORTH, SOUTH, manifest


def admitting() -> JobHarness:
    harness = JobHarness()
    harness.settle()
    return harness


def complete() -> JobHarness:
    harness = JobHarness().running()
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    return harness


def readers(seen: JobObservation, harness: JobHarness) -> list[str]:
    """The files whose functions are given the observation, in order; its own properties are no interpretation."""
    files: list[str] = []

    def record_call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and any(value is seen for value in frame.f_locals.values()):
            files.append(Path(frame.f_code.co_filename).name)

    sys.setprofile(record_call)
    try:
        reconcile(seen, harness.now, harness.settings)
    finally:
        sys.setprofile(None)
    return [name for name, _ in groupby(name for name in files if name != "observe.py")]


@pytest.mark.parametrize(
    "make", [admitting, lambda: JobHarness().start_job(), lambda: JobHarness().running(), complete]
)
def test_an_observation_is_read_by_few_files_and_each_is_left_once(make: Callable[[], JobHarness]) -> None:
    harness = make()
    seen = harness.current_observation()
    assert seen is not None
    first, *rest = readers(seen, harness)
    assert first == "reconcile.py"
    parts = [name for name in rest if name != "assess.py"]
    assert len(parts) == len(set(parts)), rest
    assert set(parts) <= {
        "original_spec.py",
        "silo_keys.py",
        "trust.py",
        "participants.py",
        "blockers.py",
        "drains.py",
    }


def test_a_job_goes_through_its_stages() -> None:
    harness = JobHarness(manifest(ttlSecondsAfterFinished=3600))
    assert state_of(harness).stage is Stage.ADMITTING
    harness.settle()
    harness.admit(NORTH, SOUTH)
    assert state_of(harness).stage is Stage.STARTING
    harness.step()
    assert state_of(harness).stage is Stage.STARTED
    harness.running()
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    assert state_of(harness).stage is Stage.ENDING
    harness.settle()
    assert state_of(harness).stage is Stage.FINISHED


def test_a_suspended_job_does_not_start_though_it_could() -> None:
    harness = JobHarness(manifest(suspend=True))
    harness.settle()
    harness.admit(NORTH, SOUTH)
    state = state_of(harness)
    assert state.stage is Stage.ADMITTING
    assert [silo.ref for silo in state.starters] == [NORTH, SOUTH]
    assert not state.active
