"""What the operator told the silos counts, and not what somebody makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import CONFIG_MAP, JOB, SECRET, SERVICE, SILO_AGENT, SILO_KIND, Ref, ref_of
from fedsilo_operator.plan import Create, Plan
from tests.unit.operator.job.scene import JOB_REF, NORTH, SETTINGS, SOUTH, Scene, manifest

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
OTHER_MASTER = replace(SETTINGS, master=b"n" * 32)


def forge(scene: Scene, **trust: Any) -> Object:
    """Somebody edits the agent of a silo."""
    agent = scene.agent(NORTH)
    agent["spec"]["trust"] |= trust
    return scene.cluster.put(agent | {"status": None}, "somebody")


FORGERIES = [{"address": "10.66.6.6"}, {"taskKey": "ed25519:" + "A" * 43 + "="}, {"url": "https://evil:8443"}]


@pytest.mark.parametrize("trust", FORGERIES)
def test_a_forged_agent_is_made_again_before_the_start(trust: dict[str, Any]) -> None:
    scene = Scene()
    scene.settle()
    forge(scene, **trust)
    scene.admit(NORTH, SOUTH)
    before = scene.cluster.peek(SERVICE, AGGREGATOR)
    scene.step()
    status, reason, message = scene.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    ((field, said),) = trust.items()
    assert f"has in spec.trust.{field} {said}, not " in message
    assert not scene.cluster.objects(CONFIG_MAP), "nothing starts on such news"
    scene.settle()
    assert scene.agent(NORTH)["spec"]["trust"][field] == scene.agent(SOUTH)["spec"]["trust"][field]
    assert scene.cluster.peek(SERVICE, AGGREGATOR) == before


@pytest.mark.parametrize("trust", [*FORGERIES, {"caCertificate": "-----BEGIN CERTIFICATE-----"}])
def test_a_forged_agent_is_stopped_and_named_after_the_start(trust: dict[str, Any]) -> None:
    scene = Scene().running()
    before = scene.cluster.peek(SERVICE, AGGREGATOR)
    forged = forge(scene, **trust)
    scene.settle()
    assert scene.cluster.peek(SERVICE, AGGREGATOR) == before
    status, reason, message = scene.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert message.startswith(f"Silo silo-north/north: SiloAgent {ref_of(forged)} has in spec.trust.")
    assert message.endswith("Delete it, and the operator makes it again.")
    assert [scene.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, False]
    assert scene.phase() == "Running", "the aggregator and the other silos go on"
    scene.cluster.remove(SILO_AGENT, ref_of(forged))
    scene.settle()
    ((field, _),) = trust.items()
    assert scene.agent(NORTH)["spec"]["trust"][field] == scene.agent(SOUTH)["spec"]["trust"][field]
    assert scene.agent(NORTH)["spec"]["suspend"] is False


def test_a_lost_record_is_made_again_from_what_is_known() -> None:
    scene = Scene().running()
    before = scene.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"]
    scene.cluster.remove(CONFIG_MAP, AGGREGATOR)
    scene.settle()
    assert scene.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"] == before


def under(scene: Scene, settings: Any) -> Plan:
    seen = scene.seen()
    assert isinstance(seen, JobObservation)
    return reconcile(seen, scene.now, settings)


def running_condition(decided: Plan) -> dict[str, Any]:
    assert decided.status is not None
    (found,) = (item for item in decided.status["conditions"] if item["type"] == "Running")
    return dict(found)


def test_a_replaced_master_key_is_noticed_and_makes_no_keys_that_nobody_trusts() -> None:
    scene = Scene().started()
    scene.run(NORTH, SOUTH)
    decided = under(scene, OTHER_MASTER)
    found = running_condition(decided)
    assert (found["status"], found["reason"]) == ("False", "TrustBroken")
    assert "it was replaced. Restore Secret fedsilo-system/fedsilo-operator-key" in found["message"]
    assert not any(isinstance(action, Create) for action in decided.actions)
    assert any(isinstance(action, Create) for action in under(scene, SETTINGS).actions)


def test_a_job_that_runs_goes_on_under_a_replaced_master_key_and_says_so() -> None:
    scene = Scene().running()
    decided = under(scene, OTHER_MASTER)
    assert not decided.actions
    found = running_condition(decided)
    assert (found["status"], found["reason"]) == ("True", "TrustBroken")
    scene.cluster.remove(SECRET, ref_of(scene.cluster.objects(SECRET)[0]))
    assert not under(scene, OTHER_MASTER).actions
    assert [event.reason for event in decided.events] == ["TrustBroken"]
    assert decided.events[0].type == "Warning"


def unreadable(scene: Scene) -> None:
    """As a version would have written it that knows more."""
    job = scene.job
    job["spec"]["telepathy"] = {"level": 3}
    scene.cluster.put(job | {"status": None})


def test_a_job_that_another_version_has_started_goes_on_and_says_so() -> None:
    scene = Scene().running()
    before = {kind: scene.cluster.objects(kind) for kind in (JOB, SILO_AGENT, SILO_KIND, SERVICE, CONFIG_MAP)}
    unreadable(scene)
    scene.settle()
    status, reason, message = scene.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("Unknown", "Unreadable")
    assert "spec.telepathy" in message
    assert scene.phase() == "Running"
    assert {kind: scene.cluster.objects(kind) for kind in before} == before
    scene.pod("Succeeded", terminated={"exitCode": 0})
    scene.end("Complete")
    scene.settle()
    assert scene.phase() == "Complete", "what the aggregator's Job says needs no reading"


def test_a_job_that_can_be_read_again_is_accepted_again() -> None:
    scene = Scene().running()
    unreadable(scene)
    scene.settle()
    scene.change(suspend=True)
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is True, "a person may stop it"
    job = scene.job
    del job["spec"]["telepathy"]
    job["spec"]["suspend"] = False
    scene.cluster.put(job | {"status": None})
    scene.run(NORTH, SOUTH)
    scene.settle()
    assert scene.condition("Accepted") == ("True", "Accepted", "The specification can be run.")
    assert scene.batch()["spec"]["suspend"] is False


def test_a_job_that_never_started_and_cannot_be_read_fails() -> None:
    scene = Scene(manifest(telepathy=True))
    scene.settle()
    assert scene.phase() == "Failed"
