"""What the operator told the silos counts, and not what somebody makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import CONFIG_MAP, JOB, SECRET, SERVICE, SILO_AGENT, SILO_KIND, Ref, ref_of
from fedsilo_operator.plan import Plan
from fedsilo_operator.workloads.aggregator import CONFIG_FILE
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import JOB_REF, NORTH, SETTINGS, SOUTH, manifest

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
OTHER_MASTER = replace(SETTINGS, master=b"n" * 32)


def forge(harness: JobHarness, **trust: Any) -> Object:
    """Somebody edits the agent of a silo."""
    agent = harness.agent(NORTH)
    agent["spec"]["trust"] |= trust
    return harness.cluster.put(agent | {"status": None}, "somebody")


FORGERIES = [{"address": "10.66.6.6"}, {"taskKey": "ed25519:" + "A" * 43 + "="}, {"url": "https://evil:8443"}]


@pytest.mark.parametrize("trust", FORGERIES)
def test_a_forged_agent_is_made_again_before_the_start(trust: dict[str, Any]) -> None:
    harness = JobHarness()
    harness.settle()
    forge(harness, **trust)
    harness.admit(NORTH, SOUTH)
    before = harness.cluster.peek(SERVICE, AGGREGATOR)
    harness.step()
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    ((field, said),) = trust.items()
    assert f"has in spec.trust.{field} {said}, not " in message
    assert not harness.cluster.objects(CONFIG_MAP), "nothing starts on such news"
    harness.settle()
    assert harness.agent(NORTH)["spec"]["trust"][field] == harness.agent(SOUTH)["spec"]["trust"][field]
    assert harness.cluster.peek(SERVICE, AGGREGATOR) == before


@pytest.mark.parametrize("trust", [*FORGERIES, {"caCertificate": "-----BEGIN CERTIFICATE-----"}])
def test_a_forged_agent_is_stopped_and_named_after_the_start(trust: dict[str, Any]) -> None:
    harness = JobHarness().running()
    before = harness.cluster.peek(SERVICE, AGGREGATOR)
    forged = forge(harness, **trust)
    harness.settle()
    assert harness.cluster.peek(SERVICE, AGGREGATOR) == before
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert message.startswith(f"Silo silo-north/north: SiloAgent {ref_of(forged)} has in spec.trust.")
    assert message.endswith("Delete it, and the operator makes it again.")
    assert [harness.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, False]
    assert harness.phase() == "Running", "the aggregator and the other silos go on"
    harness.cluster.remove(SILO_AGENT, ref_of(forged))
    harness.settle()
    ((field, _),) = trust.items()
    assert harness.agent(NORTH)["spec"]["trust"][field] == harness.agent(SOUTH)["spec"]["trust"][field]
    assert harness.agent(NORTH)["spec"]["suspend"] is False


def test_a_lost_record_is_made_again_from_what_is_known() -> None:
    harness = JobHarness().running()
    before = harness.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"]
    harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    harness.settle()
    assert harness.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"] == before


def plan_under(harness: JobHarness, settings: Any) -> Plan:
    seen = harness.current_observation()
    assert isinstance(seen, JobObservation)
    return reconcile(seen, harness.now, settings)


def running_condition(decided: Plan) -> dict[str, Any]:
    assert decided.status is not None
    (found,) = (item for item in decided.status["conditions"] if item["type"] == "Running")
    return dict(found)


def test_a_replaced_master_key_is_noticed_and_makes_no_keys_that_nobody_trusts() -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    decided = plan_under(harness, OTHER_MASTER)
    found = running_condition(decided)
    assert (found["status"], found["reason"]) == ("False", "TrustBroken")
    assert "it was replaced. Restore Secret fedsilo-system/fedsilo-operator-key" in found["message"]
    assert not any(action.kind == SECRET for action in decided.actions)
    assert any(action.kind == SECRET for action in plan_under(harness, SETTINGS).actions)


def test_a_job_that_runs_goes_on_under_a_replaced_master_key_and_reports_it() -> None:
    harness = JobHarness().running()
    decided = plan_under(harness, OTHER_MASTER)
    assert not decided.actions
    found = running_condition(decided)
    assert (found["status"], found["reason"]) == ("True", "TrustBroken")
    harness.cluster.remove(SECRET, ref_of(harness.cluster.objects(SECRET)[0]))
    assert not plan_under(harness, OTHER_MASTER).actions
    assert [event.reason for event in decided.events] == ["TrustBroken"]
    assert decided.events[0].type == "Warning"


def put_unreadable_job(harness: JobHarness) -> None:
    """Write a job as a version would that knows more fields."""
    job = harness.job
    job["spec"]["telepathy"] = {"level": 3}
    harness.cluster.put(job | {"status": None})
    _edit_record(harness, lambda spec: spec.update(telepathy={"level": 3}))


def _edit_record(harness: JobHarness, edit: Callable[[Object], None]) -> None:
    """Write what the silos were given at the start as another version would."""
    record = harness.cluster.peek(CONFIG_MAP, AGGREGATOR)
    content = json.loads(record["data"][CONFIG_FILE])
    edit(content["job"]["spec"])
    record["data"][CONFIG_FILE] = json.dumps(content)
    harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    kept = {name: record["metadata"][name] for name in ("name", "namespace", "labels", "ownerReferences")}
    harness.cluster.put(record | {"metadata": kept}, "fedsilo-operator")


def test_a_job_that_another_version_has_started_goes_on_and_reports_it() -> None:
    harness = JobHarness().running()
    put_unreadable_job(harness)
    before = {
        kind: harness.cluster.objects(kind) for kind in (JOB, SILO_AGENT, SILO_KIND, SERVICE, CONFIG_MAP)
    }
    harness.settle()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("Unknown", "Unreadable")
    assert "spec.telepathy" in message
    assert harness.phase() == "Running"
    assert {kind: harness.cluster.objects(kind) for kind in before} == before
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    harness.settle()
    assert harness.phase() == "Complete", "what the aggregator's Job says needs no reading"


def test_a_job_that_can_be_read_again_is_accepted_again() -> None:
    harness = JobHarness().running()
    put_unreadable_job(harness)
    harness.settle()
    harness.change(suspend=True)
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is True, "a person may stop it"
    job = harness.job
    del job["spec"]["telepathy"]
    _edit_record(harness, lambda spec: spec.pop("telepathy"))
    job["spec"]["suspend"] = False
    harness.cluster.put(job | {"status": None})
    harness.run(NORTH, SOUTH)
    harness.settle()
    assert harness.condition("Accepted") == ("True", "Accepted", "The specification can be run.")
    assert harness.batch()["spec"]["suspend"] is False


def test_a_job_that_never_started_and_cannot_be_read_fails() -> None:
    harness = JobHarness(manifest(telepathy=True))
    harness.settle()
    assert harness.phase() == "Failed"
