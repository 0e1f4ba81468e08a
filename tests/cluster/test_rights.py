"""What the accounts of a federation may do, and how far somebody comes who may write to the silos' namespaces.

Such a person, the hub's administrator say, can edit agents and make some by hand. What a silo sends still follows its
own policy; see docs/security.md for what does not.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object
from fedsilo.wire import SigningKey
from fedsilo_operator.names import agent_name
from fedsilo_operator.objects import Ref
from hack.cluster.kubectl import Kubectl
from tests.cluster.federation import ClusterFederation, federation
from tests.cluster.namespace import Namespace, wait_until
from tests.cluster.rights import rights

CCVR = {"name": "ccvr", "config": {"after": {"name": "fedavg"}}}
POLICY = {"payloadKinds": ["model"]}


def golden(name: str) -> str:
    return Path(__file__).with_name(f"rights-{name}.golden").read_text()


@pytest.fixture(scope="module")
def waiting(kubectl: Kubectl, own_operator: Namespace) -> Iterator[ClusterFederation]:
    """A suspended job whose agents, accounts and roles are there, but no pod. Its silos send nothing but models."""
    with federation(kubectl, "fedavg.yaml", suspend=True) as made:
        for item in made.objects:
            if item["kind"] == "Silo":
                item["spec"]["policy"] = copy.deepcopy(POLICY)
        made.apply()
        north = made.silo("north")
        wait_until(lambda: made.home.find("rolebinding", "digits-fedavg-aggregator"), "the aggregator's role")
        wait_until(lambda: admission(north, made_by_operator(made)), "the agents' admission")
        yield made


def test_rights_of_an_aggregator(waiting: ClusterFederation) -> None:
    home = waiting.home
    name = home.select("serviceaccounts", "app.kubernetes.io/component=aggregator")[0]["metadata"]["name"]
    assert rights(home.kubectl.as_service_account(home.name, name), home.name) == golden("aggregator")
    assert "*" not in golden("aggregator")


@pytest.mark.parametrize("place", ["the silo's namespace", "the job's namespace"])
def test_rights_of_guard_and_trainer(waiting: ClusterFederation, place: str) -> None:
    """Guard and trainer run as the default account of their namespace, and without its token."""
    silo = waiting.silo("north")
    namespace = silo if place == "the silo's namespace" else waiting.home
    assert rights(silo.kubectl.as_service_account(silo.name, "default"), namespace.name) == golden("agent")
    assert "*" not in golden("agent")


# --- Agents that somebody edits or makes.


def made_by_operator(waiting: ClusterFederation) -> str:
    """Name of the agent of the silo `north`."""
    job, silo = waiting.observed_job()["metadata"], waiting.silo("north")
    return agent_name(Ref(job["namespace"], job["name"]), job["uid"], Ref(silo.name, "north"))


def admission(silo: Namespace, name: str) -> dict[str, str] | None:
    """The condition `Admitted` of an agent, once the operator has decided."""
    agent = silo.find("siloagent", name) or {}
    conditions = (agent.get("status") or {}).get("conditions", ())
    return next((found for found in conditions if found["type"] == "Admitted"), None)


def test_an_agent_cannot_be_edited(waiting: ClusterFederation) -> None:
    silo, name = waiting.silo("north"), made_by_operator(waiting)
    for field, patch in {
        "job": '{"spec": {"job": {"spec": {"method": {"name": "ccvr"}}}}}',
        "trust": '{"spec": {"trust": {"url": "https://elsewhere.example:8443"}}}',
    }.items():
        said = silo.kubectl.refusal("-n", silo.name, "patch", "siloagent", name, "--type=merge", "-p", patch)
        assert f"spec.{field}: " in said
        assert "does not change once the agent exists" in said


def forged_agent(waiting: ClusterFederation, **changes: Any) -> Object:
    """An agent for the silo `north` as the operator would make it, of a job that nobody created and with a key of
    the forger's; suspended, so that nothing starts.

    :param changes: fields of the job's specification.
    """
    real = waiting.silo("north").get("siloagent", made_by_operator(waiting))
    spec = copy.deepcopy(real["spec"])
    job, silo = spec["job"], Ref(spec["silo"]["namespace"], spec["silo"]["name"])
    job["uid"] = str(uuid.uuid4())
    job["spec"] |= changes
    job["specDigest"] = spec_digest(FederatedJobSpec.model_validate(job["spec"]))
    spec["trust"]["taskKey"] = SigningKey.generate().verify_key.to_text()
    spec["suspend"] = True
    name = agent_name(Ref(job["namespace"], job["name"]), job["uid"], silo)
    return {"apiVersion": real["apiVersion"], "kind": "SiloAgent", "metadata": {"name": name}, "spec": spec}


def operator_decision(waiting: ClusterFederation, agent: Object) -> dict[str, str]:
    """What the operator says to an agent that somebody made."""
    silo, name = waiting.silo("north"), agent["metadata"]["name"]
    silo.apply(agent)
    try:
        return wait_until(lambda: admission(silo, name), f"the decision on {name}")
    finally:
        silo.delete("siloagent", name)


def digest_of_another(agent: Object) -> None:
    agent["spec"]["job"]["specDigest"] = "0" * 64


def key_of_another(agent: Object) -> None:
    agent["spec"]["trust"]["publicKey"] = SigningKey.generate().verify_key.to_text()


def name_of_another(agent: Object) -> None:
    agent["metadata"]["name"] += "-2"


@pytest.mark.parametrize("forge", [digest_of_another, key_of_another, name_of_another])
def test_an_agent_that_does_not_agree_with_itself_is_not_trusted(
    waiting: ClusterFederation, forge: Callable[[Object], None]
) -> None:
    agent = forged_agent(waiting)
    forge(agent)
    said = operator_decision(waiting, agent)
    assert (said["status"], said["reason"]) == ("False", "TrustBroken")


def test_an_agent_with_another_method_must_pass_the_silos_policy(waiting: ClusterFederation) -> None:
    said = operator_decision(waiting, forged_agent(waiting, method=CCVR))
    assert (said["status"], said["reason"]) == ("False", "PolicyRefused")
    assert "policy.payloadKinds does not allow class_covariances, class_means" in said["message"]


def test_an_agent_that_the_policy_allows_is_admitted_whoever_made_it(waiting: ClusterFederation) -> None:
    """The limit of it: who may make agents in a silo's namespace may run what its policy allows."""
    assert operator_decision(waiting, forged_agent(waiting))["status"] == "True"


def test_an_agent_in_the_place_of_the_operators_is_made_again(
    waiting: ClusterFederation, own_operator: Namespace
) -> None:
    """Deleted and made again under its name and with its labels, with a method that sends more."""
    silo, name = waiting.silo("north"), made_by_operator(waiting)
    real = silo.get("siloagent", name)
    again = forged_agent(waiting, method=CCVR)
    again["spec"]["job"]["uid"] = real["spec"]["job"]["uid"]
    again["metadata"] = {key: real["metadata"][key] for key in ("name", "labels")}

    # While no operator is there, which would be faster than any forger.
    own_operator.run("scale", "deployment/fedsilo-operator", "--replicas=0")
    try:
        wait_until(lambda: not own_operator.select("pods"), "the operators to end")
        silo.run("delete", "siloagent", name)
        silo.run("create", "-f", "-", stdin=_document(again, silo))
        known = {real["metadata"]["uid"], silo.get("siloagent", name)["metadata"]["uid"]}
    finally:
        own_operator.run("scale", "deployment/fedsilo-operator", "--replicas=2")
        own_operator.run("rollout", "status", "deployment/fedsilo-operator", "--timeout=120s", timeout=130)

    restored = wait_until(
        lambda: _as(silo.find("siloagent", name), real), "the operator's own agent to come back"
    )
    assert restored["metadata"]["uid"] not in known
    assert silo.select("jobs", f"fedsilo.io/silo-agent={name}") == [], "nothing runs for any of them"


def _as(agent: Object | None, wanted: Object) -> Object | None:
    """The agent, once it says what it should."""
    return agent if agent and agent["spec"] == wanted["spec"] else None


def _document(item: Object, namespace: Namespace) -> str:
    return json.dumps(item | {"metadata": item["metadata"] | {"namespace": namespace.name}})
