"""Delete any object of a job while it runs: it comes back, and the model is the same, bit for bit."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from tests.cluster.chaos.disturbance import agent_of, hold_trainer, of_job
from tests.cluster.federation import ClusterFederation
from tests.cluster.namespace import Namespace, wait_until
from tests.cluster.pod_history import watched_pods

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("operator")]


def test_objects_that_are_deleted_come_back(
    kubectl: Kubectl, running: ClusterFederation, undisturbed_digest: str
) -> None:
    home, north = running.home, running.silo("north")
    ours, agent = f"{running.job['metadata']['name']}-aggregator", agent_of(running, north)
    with watched_pods(kubectl, running.job) as pods:
        with hold_trainer(running):
            address = home.get("service", ours)["spec"]["clusterIP"]
            for kind in ("service", "role", "rolebinding", "networkpolicy", "configmap"):
                _await_restore(home, kind, ours)
            assert home.get("service", ours)["spec"]["clusterIP"] == address
            _await_restore(north, "configmap", agent)
            for component in ("guard", "trainer"):
                _await_restore(north, "networkpolicy", f"{agent}-{component}")

            parts = [(home, "aggregator"), (north, "guard"), (north, "trainer")]
            before = [running.pod(*part) for part in parts]
            # Nobody may read the Secret, so nobody sees that it is gone before a pod wants it: the one that takes the
            # place of a pod whose account is gone.
            (secret,) = of_job(running, home, "secrets")
            home.delete("secret", secret["metadata"]["name"])
            _await_restore(home, "serviceaccount", ours)
            for component in ("guard", "trainer"):
                _await_restore(north, "job", f"{agent}-{component}")
            for part, name in zip(parts, before, strict=True):
                running.pod(*part, besides=name)
            home.get("secret", secret["metadata"]["name"])

            before = [running.pod(*part) for part in parts]
            _await_restore(home, "job", ours)
            _await_restore(north, "siloagent", agent)
            for part, name in zip(parts, before, strict=True):
                running.pod(*part, besides=name)
        assert running.wait_complete()["model"]["sha256"] == undisturbed_digest
    assert pods.doubles == []
    assert pods.made == {
        "aggregator": 3,
        "north/guard": 3,
        "north/trainer": 3,
        "east/guard": 1,
        "east/trainer": 1,
    }


def test_a_deleted_job_goes_with_its_agents_and_leaves_its_volumes(running: ClusterFederation) -> None:
    places = (running.home, running.silo("north"), running.silo("east"))
    claims = [of_job(running, place, "persistentvolumeclaims") for place in places]
    running.home.delete("federatedjob", running.job["metadata"]["name"])
    assert not any(of_job(running, place, "siloagents") for place in places), "the finalizer waits for them"
    children = "jobs,pods,services,configmaps,networkpolicies,roles"
    wait_until(
        lambda: not any(of_job(running, place, children) for place in places), "what was the job's to go"
    )
    for place, before in zip(places, claims, strict=True):
        (claim,) = before
        (after,) = of_job(running, place, "persistentvolumeclaims")
        assert (after["metadata"]["uid"], after["status"]["phase"]) == (claim["metadata"]["uid"], "Bound")


def _await_restore(place: Namespace, kind: str, name: str) -> None:
    """Delete an object, and wait until it is there again."""
    before = place.get(kind, name)["metadata"]["uid"]
    place.run("delete", kind, name, "--wait=false")

    def find_other() -> Object | None:
        found = place.find(kind, name)
        return found if found and found["metadata"]["uid"] != before else None

    wait_until(find_other, f"another {kind} {name} in {place.name}")
