"""A status that a user wrote, where no policy was there to refuse it, is corrected by the next reconcile."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import NORTH

STATUS_EDITS: dict[str, Any] = {
    "phase": lambda status: status.update(phase="Suspended"),
    "condition": lambda status: status["conditions"][-1].update(status="False", reason="Mine", message="no"),
    "condition that goes": lambda status: status["conditions"].pop(),
    "silo": lambda status: status["silos"][0].update(phase="Failed", message="it is not"),
    "start": lambda status: status.pop("startTime"),
}


@pytest.mark.parametrize("name", STATUS_EDITS)
def test_what_the_operator_has_found_comes_back(name: str) -> None:
    harness = JobHarness().running()
    before = deepcopy(harness.job["status"])
    job = harness.job
    STATUS_EDITS[name](job["status"])
    harness.cluster.put(job, "kubectl-edit")
    harness.settle()
    after = harness.job["status"]
    for status in (before, after):
        status.pop("startTime", None)
        for found in status["conditions"]:
            found.pop("lastTransitionTime")
    assert after == before
    assert "startTime" in harness.job["status"]


def test_a_silo_that_a_user_admitted_is_not_admitted() -> None:
    harness = JobHarness()
    harness.settle()
    agent = harness.agent(NORTH)
    said = {"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""}
    harness.cluster.put(agent | {"status": {"phase": "Admitted", "conditions": [said]}}, "kubectl-edit")
    harness.settle()
    assert (harness.condition("Admitted") or ("",))[0] == "False"
