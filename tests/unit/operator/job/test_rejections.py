"""What the API server refuses: the others go on, the job says it, and it is tried again."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import holds
from fedsilo_operator.cluster.interface import FieldConflict, Refused
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import CONFIG_MAP, JOB, NETWORK_POLICY, SERVICE, SILO_AGENT, Ref, ref_of
from tests.unit.operator.job.scene import JOB_REF, NORTH, SOUTH, Scene

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
QUOTA = Refused('siloagents.fedsilo.io "x" is forbidden: exceeded quota: agents')


def test_a_silo_that_takes_no_agent_holds_up_no_other_and_is_named() -> None:
    scene = Scene()
    scene.refuse_writes(QUOTA, SILO_AGENT, NORTH.namespace)
    scene.settle()
    assert scene.agents() == ["south"]
    status, reason, message = scene.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert message.startswith("Silo north: The API server refuses SiloAgent silo-north/digits-north-")
    assert "exceeded quota: agents. Change what it names" in message
    entries = {entry["name"]: entry["message"] for entry in scene.job["status"]["silos"]}
    assert "exceeded quota" in entries["north"]
    assert entries["south"] == ""
    assert scene.events()[-1] == ("Warning", "ApiRefused")
    scene.admit(SOUTH)
    scene.settle()
    assert scene.agent(SOUTH)["spec"]["suspend"] is True, "not without the other one"
    scene.refuse_writes(QUOTA, SILO_AGENT)
    scene.settle()
    assert scene.condition("Admitted") == (
        "False",
        "Admitting",
        "Waiting for the decision of silo-north/north.",
    )


def test_an_agent_that_may_not_be_resumed_holds_up_no_other() -> None:
    scene = Scene()
    scene.settle()
    held = FieldConflict('Apply failed with 1 conflict: conflict with "kubectl-edit": .spec.suspend')
    scene.refuse_writes(held, SILO_AGENT, NORTH.namespace)
    scene.admit(NORTH, SOUTH)
    scene.settle()
    assert [scene.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, False]
    status, reason, message = scene.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert 'conflict with "kubectl-edit": .spec.suspend. Undo what that manager has changed' in message
    scene.refuse_writes(held, SILO_AGENT)
    scene.run(NORTH, SOUTH)
    scene.settle()
    assert ref_of(scene.batch()) == AGGREGATOR


@pytest.mark.parametrize("kind", [SERVICE, NETWORK_POLICY, CONFIG_MAP])
def test_nothing_starts_without_what_the_job_itself_needs(kind: object) -> None:
    scene = Scene()
    if kind == CONFIG_MAP:
        scene.settle()
        scene.admit(NORTH, SOUTH)
    scene.refuse_writes(QUOTA, kind, JOB_REF.namespace)  # type: ignore[arg-type]
    scene.settle()
    status, reason, message = scene.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "ApiRefused")
    assert f"The API server refuses {kind} {AGGREGATOR}: " in message
    assert "startTime" not in scene.job["status"]
    assert all(agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT))
    scene.refuse_writes(QUOTA, kind)  # type: ignore[arg-type]
    scene.started()
    assert scene.condition("Accepted") == ("True", "Accepted", "The specification can be run.")


def test_what_is_refused_after_the_start_stops_no_silo_and_no_suspension() -> None:
    scene = Scene().running()
    scene.refuse_writes(QUOTA, NETWORK_POLICY, JOB_REF.namespace)
    scene.cluster.remove(NETWORK_POLICY, AGGREGATOR)
    scene.settle()
    status, reason, _ = scene.condition("Running") or ("", "", "")
    assert (status, reason) == ("True", "ApiRefused")
    scene.change(suspend=True)
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is True
    assert all(agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT))
    scene.refuse_writes(QUOTA, NETWORK_POLICY)
    scene.change(suspend=False)
    scene.settle()
    assert scene.cluster.peek(NETWORK_POLICY, AGGREGATOR)


def test_what_another_made_under_the_job_s_names_is_left_alone_and_named() -> None:
    scene = Scene()
    theirs = {"name": AGGREGATOR.name, "namespace": AGGREGATOR.namespace}
    made = scene.cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": theirs, "spec": {"x": "y"}})
    scene.refusing = SERVICE
    scene.settle()
    assert scene.cluster.peek(SERVICE, AGGREGATOR) == made
    status, reason, message = scene.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith(f"Service {AGGREGATOR} is there already and is not one that the operator made")
    scene.cluster.remove(SERVICE, AGGREGATOR)
    scene.refusing = None
    scene.running()
    assert scene.phase() == "Running"


def test_a_label_makes_nothing_the_job_s() -> None:
    """Whoever may make a Job in the job's namespace must not end the job with it."""
    scene = Scene().started()
    labels = scene.cluster.peek(SERVICE, AGGREGATOR)["metadata"]["labels"]
    forged = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": AGGREGATOR.name, "namespace": AGGREGATOR.namespace, "labels": labels},
        "spec": {"backoffLimit": 0, "template": {}},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    scene.cluster.put(forged)
    scene.run(NORTH, SOUTH)
    scene.refusing = JOB
    scene.settle()
    assert not holds(scene.job, "Complete")
    assert scene.condition("Running")[1] == "NameTaken"  # type: ignore[index]
    assert scene.batch()["spec"] == forged["spec"]
