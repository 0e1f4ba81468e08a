"""A specification that was changed while no admission rule was there is found by the next reconcile."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.explanation.explain import WaitState, explain
from fedsilo_operator.names import agent_name
from fedsilo_operator.objects import CONFIG_MAP, SILO_AGENT, Ref
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import JOB_REF, NORTH, SOUTH

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")

CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "a number": ({"training": {"rounds": 4}}, "spec.training.rounds is 4 and was 3"),
    "a setting of the method": (
        {"method": {"name": "fedprox", "config": {"mu": 1}}},
        'spec.method.config.mu is 1 and was nothing, spec.method.name is "fedprox" and was "fedavg"',
    ),
    "something that cannot be read": ({"training": {"rounds": "four"}}, "spec cannot be read any more"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_spec_is_named_and_the_job_goes_on_as_it_began(name: str) -> None:
    changes, said = CHANGES[name]
    harness = JobHarness().running()
    before = harness.batch()
    harness.change(**changes)
    decided = harness.step()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert f"changed after the start: {said}. The job goes on as its silos admitted it." in message
    assert [(event.type, event.reason) for event in decided.events] == [("Warning", "TrustBroken")]
    harness.settle()
    assert harness.batch() == before
    assert harness.phase() == "Running"
    assert explain(harness.job).state == WaitState.BETWEEN_ROUNDS
    harness.cluster.remove(SILO_AGENT, Ref(NORTH.namespace, agent_name(JOB_REF, harness.uid, NORTH)))
    harness.settle()
    made, other = (harness.agent(ref)["spec"]["job"] for ref in (NORTH, SOUTH))
    assert made == other, "an agent that is made again has what the others have"


def test_a_spec_that_is_changed_back_is_accepted_again() -> None:
    harness = JobHarness().running()
    before = harness.job["spec"]
    harness.change(training={"rounds": 4})
    harness.settle()
    harness.change(**before)
    harness.settle()
    assert (harness.condition("Accepted") or ("",))[0] == "True"


def test_a_job_that_ends_after_a_change_does_not_say_that_its_spec_was_run() -> None:
    harness = JobHarness().running()
    harness.change(training={"rounds": 4})
    harness.settle()
    harness.pod("Succeeded")
    harness.end("Complete")
    harness.settle()
    assert (harness.condition("Complete") or ("",))[0] == "True"
    assert (harness.condition("Accepted") or ("", ""))[:2] == ("False", "TrustBroken")


def test_before_the_start_silos_are_asked_again_about_a_changed_spec() -> None:
    harness = JobHarness()
    harness.settle()
    before = harness.agent(NORTH)["spec"]["job"]["specDigest"]
    harness.change(training={"rounds": 4})
    harness.admit(NORTH, SOUTH)
    harness.settle()
    asked = [harness.agent(ref)["spec"]["job"] for ref in (NORTH, SOUTH)]
    assert all(job["specDigest"] != before and job["spec"]["training"]["rounds"] == 4 for job in asked)
    assert not harness.cluster.objects(CONFIG_MAP), "nobody has admitted this one"
    assert (harness.condition("Admitted") or ("",))[0] == "False"
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert harness.cluster.peek(CONFIG_MAP, AGGREGATOR)
