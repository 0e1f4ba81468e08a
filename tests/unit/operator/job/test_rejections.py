"""What the API server refuses: the others go on, the job says it, and it is tried again."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import holds
from fedsilo_operator.cluster.interface import CallRefused, FieldCause, FieldConflict, ObjectInvalid
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    NETWORK_POLICY,
    SERVICE,
    SILO_AGENT,
    Kind,
    Ref,
    ref_of,
)
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import JOB_REF, NORTH, SOUTH

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
QUOTA = CallRefused('siloagents.fedsilo.io "x" is forbidden: exceeded quota: agents')


def test_a_silo_that_takes_no_agent_holds_up_no_other_and_is_named() -> None:
    harness = JobHarness()
    harness.refuse_writes(QUOTA, SILO_AGENT, NORTH.namespace)
    harness.settle()
    assert harness.agents() == ["south"]
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert message.startswith("Silo north: The API server refuses SiloAgent silo-north/digits-north-")
    assert "exceeded quota: agents. Change what it names" in message
    entries = {entry["name"]: entry["message"] for entry in harness.job["status"]["silos"]}
    assert "exceeded quota" in entries["north"]
    assert entries["south"] == ""
    assert harness.events()[-1] == ("Warning", "ApiRefused")
    harness.admit(SOUTH)
    harness.settle()
    assert harness.agent(SOUTH)["spec"]["suspend"] is True, "not without the other one"
    harness.refuse_writes(QUOTA, SILO_AGENT)
    harness.settle()
    assert harness.condition("Admitted") == (
        "False",
        "Admitting",
        "Waiting for the decision of silo-north/north.",
    )


def test_an_agent_that_may_not_be_resumed_holds_up_no_other() -> None:
    harness = JobHarness()
    harness.settle()
    held = FieldConflict('Apply failed with 1 conflict: conflict with "kubectl-edit": .spec.suspend')
    harness.refuse_writes(held, SILO_AGENT, NORTH.namespace)
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert [harness.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, False]
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert 'conflict with "kubectl-edit": .spec.suspend. Undo what that manager has changed' in message
    harness.refuse_writes(held, SILO_AGENT)
    harness.run(NORTH, SOUTH)
    harness.settle()
    assert ref_of(harness.batch()) == AGGREGATOR


def invalid_answer(field: str, message: str) -> ObjectInvalid:
    """The answer of an API server that finds one field of an object invalid."""
    return ObjectInvalid(f"is invalid: {field}: {message}", (FieldCause(field, message),))


@pytest.mark.parametrize(
    ("kind", "field", "named"),
    [
        (
            JOB,
            "spec.template.spec.containers[0].resources.requests",
            'spec.aggregator.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (CLAIM, "spec.resources[storage]", "spec.aggregator.storage.size: "),
        (CONFIG_MAP, "[]", "spec: "),
        (SILO_AGENT, "spec.job.spec.training.rounds", "spec.training.rounds: "),
    ],
)
def test_a_child_that_no_api_server_takes_ends_the_job_and_names_its_own_field(
    kind: Kind, field: str, named: str
) -> None:
    harness = JobHarness()
    if kind in (JOB, CLAIM):
        harness.start_job()
    text = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
    harness.refuse_writes(
        invalid_answer(field, text), kind, JOB_REF.namespace, NORTH.namespace, SOUTH.namespace
    )
    if kind == CONFIG_MAP:
        harness.settle()
        harness.admit(NORTH, SOUTH)
    if kind in (JOB, CLAIM):
        harness.run(NORTH, SOUTH)
    harness.settle()
    status, reason, message = harness.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", "ManifestInvalid")
    assert f"The API server takes no {kind} of this specification: {named}" in message
    assert "Correct it in a new job" in message
    assert harness.events().count(("Warning", "ManifestInvalid")) == 1
    harness.step()
    assert harness.plan().settled


@pytest.mark.parametrize(
    "error",
    [
        invalid_answer("spec.clusterIPs", "Invalid value: 10.0.0.1: provided IP is already allocated"),
        CallRefused("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not today"),
    ],
)
def test_what_is_no_field_of_the_job_is_tried_again(error: CallRefused) -> None:
    harness = JobHarness()
    harness.refuse_writes(error, SERVICE, JOB_REF.namespace)
    harness.settle()
    assert (harness.condition("Accepted") or ("", ""))[1] == "ApiRefused"
    harness.refuse_writes(error, SERVICE)
    harness.start_job()
    assert harness.condition("Accepted") == ("True", "Accepted", "The specification can be run.")


def test_a_limit_range_is_called_by_its_name() -> None:
    text = (
        'persistentvolumeclaims "x" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but'
    )
    harness = JobHarness().start_job()
    harness.refuse_writes(CallRefused(f"{text} request is 10Gi"), CLAIM, JOB_REF.namespace)
    harness.run(NORTH, SOUTH)
    harness.settle()
    message = (harness.condition("Running") or ("", "", ""))[2]
    assert "A LimitRange of namespace federation says so: change it (`kubectl describe limitranges" in message


@pytest.mark.parametrize("kind", [SERVICE, NETWORK_POLICY, CONFIG_MAP])
def test_nothing_starts_without_what_the_job_itself_needs(kind: object) -> None:
    harness = JobHarness()
    if kind == CONFIG_MAP:
        harness.settle()
        harness.admit(NORTH, SOUTH)
    harness.refuse_writes(QUOTA, kind, JOB_REF.namespace)  # type: ignore[arg-type]
    harness.settle()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert f"The API server refuses {kind} {AGGREGATOR}: " in message
    assert "startTime" not in harness.job["status"]
    assert all(agent["spec"]["suspend"] for agent in harness.cluster.objects(SILO_AGENT))
    harness.refuse_writes(QUOTA, kind)  # type: ignore[arg-type]
    harness.start_job()
    assert harness.condition("Accepted") == ("True", "Accepted", "The specification can be run.")


def test_what_is_refused_after_the_start_stops_no_silo_and_no_suspension() -> None:
    harness = JobHarness().running()
    harness.refuse_writes(QUOTA, NETWORK_POLICY, JOB_REF.namespace)
    harness.cluster.remove(NETWORK_POLICY, AGGREGATOR)
    harness.settle()
    status, reason, _ = harness.condition("Running") or ("", "", "")
    assert (status, reason) == ("True", "ApiRefused")
    harness.change(suspend=True)
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is True
    assert all(agent["spec"]["suspend"] for agent in harness.cluster.objects(SILO_AGENT))
    harness.refuse_writes(QUOTA, NETWORK_POLICY)
    harness.change(suspend=False)
    harness.settle()
    assert harness.cluster.peek(NETWORK_POLICY, AGGREGATOR)


def test_what_another_made_under_the_job_s_names_is_left_alone_and_named() -> None:
    harness = JobHarness()
    theirs = {"name": AGGREGATOR.name, "namespace": AGGREGATOR.namespace}
    made = harness.cluster.put(
        {"apiVersion": "v1", "kind": "Service", "metadata": theirs, "spec": {"x": "y"}}
    )
    harness.refusing = SERVICE
    harness.settle()
    assert harness.cluster.peek(SERVICE, AGGREGATOR) == made
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith(f"Service {AGGREGATOR} is there already and is not one that the operator made")
    harness.cluster.remove(SERVICE, AGGREGATOR)
    harness.refusing = None
    harness.running()
    assert harness.phase() == "Running"


def test_a_label_makes_nothing_the_job_s() -> None:
    """Whoever may make a Job in the job's namespace must not end the job with it."""
    harness = JobHarness().start_job()
    labels = harness.cluster.peek(SERVICE, AGGREGATOR)["metadata"]["labels"]
    forged = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": AGGREGATOR.name, "namespace": AGGREGATOR.namespace, "labels": labels},
        "spec": {"backoffLimit": 0, "template": {}},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    harness.cluster.put(forged)
    harness.run(NORTH, SOUTH)
    harness.refusing = JOB
    harness.settle()
    assert not holds(harness.job, "Complete")
    assert harness.condition("Running")[1] == "NameTaken"  # type: ignore[index]
    assert harness.batch()["spec"] == forged["spec"]
