"""Kill or delete anything of a job while it runs: it comes back, and the model is the same, bit for bit."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from fedsilo.api.observed import Object
from hack.cluster.errors import ClusterError
from hack.cluster.kubectl import Kubectl, KubectlFailed
from hack.operator import leader
from tests.cluster.federation import END_SECONDS, ClusterFederation, federation, run_here, signal
from tests.cluster.namespace import Namespace, until
from tests.cluster.pod_history import watched_pods

pytestmark = pytest.mark.timeout(900)

ROUNDS = 12

SPEC: dict[str, Any] = {
    "training": {"rounds": ROUNDS, "localEpochs": 10, "batchSize": 16},
    "silos": {
        "refs": [{"namespace": "silo-north", "name": "north"}, {"namespace": "silo-east", "name": "east"}]
    },
    # Nobody may be missing in a round, or the model would be another one.
    "participation": {"minSilos": 2, "roundDeadline": "10m"},
}


@pytest.fixture(scope="module")
def places(kubectl: Kubectl, own_operator: Namespace) -> Iterator[ClusterFederation]:
    """The silos, for one job after the other: what a silo computes depends on its namespace and name."""
    with federation(kubectl, "fedavg.yaml", **SPEC) as made:
        kubectl.apply(*(item for item in made.objects if item["kind"] != "FederatedJob"))
        yield made


@pytest.fixture(scope="module")
def undisturbed(places: ClusterFederation, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return str(run_here(list(places.objects), folder)["model"]["sha256"])


@pytest.fixture
def running(places: ClusterFederation) -> Iterator[ClusterFederation]:
    """The job under a name of its own, with a round behind it and many to go."""
    job = copy.deepcopy(places.job)
    job["metadata"]["name"] = f"chaos-{uuid.uuid4().hex[:6]}"
    others = (item for item in places.objects if item["kind"] != "FederatedJob")
    made = replace(places, objects=(*others, job))
    made.kubectl.apply(job)
    try:
        made.round_reached(1)
        yield made
    finally:
        made.home.delete("federatedjob", job["metadata"]["name"])


@contextmanager
def held(running: ClusterFederation) -> Iterator[None]:
    """Stop east's trainer in its round, which cannot end before it goes on.

    What happens meanwhile happens in the middle of the job, however slow or fast the machine.
    """
    place = running.silo("east")
    pod = running.pod(place, "trainer")
    signal(place, pod, "SIGSTOP")
    try:
        yield
        assert running.status()["round"] < ROUNDS
    finally:
        # Unless it was killed meanwhile.
        with suppress(ClusterError, KubectlFailed):
            signal(place, pod, "SIGCONT")


def test_processes_that_are_killed_start_again(
    kubectl: Kubectl, own_operator: Namespace, running: ClusterFederation, undisturbed: str
) -> None:
    home, north, east = running.home, running.silo("north"), running.silo("east")
    with watched_pods(kubectl, running.job) as pods:
        with held(running):
            frozen = _leader(own_operator)
            signal(own_operator, frozen, "SIGSTOP")
            victims = [(home, "aggregator"), (north, "guard"), (north, "trainer"), (east, "guard")]
            before = [running.pod(place, component) for place, component in victims]
            home.run("delete", "pod", before[0], "--wait=false")
            north.run("delete", "pod", before[1], "--wait=false")
            signal(north, before[2], "SIGKILL")
            # This one only an operator can bring back: the next that leads.
            east.delete("job", f"{_agent(running, east)}-guard")
            until(lambda: leader(own_operator.kubectl) not in ("", frozen), "another operator to lead")
            signal(own_operator, frozen, "SIGCONT")
            for (place, component), name in zip(victims, before, strict=True):
                running.pod(place, component, besides=name)
            own_operator.run("delete", "pod", _leader(own_operator), "--wait=false")
            signal(east, running.pod(east, "trainer"), "SIGKILL")
            held_in = running.status()["round"]
        running.round_reached(held_in + 2)

        with held(running):
            _suspend(running, True)
            until(lambda: running.condition("Suspended").get("status") == "True", "the job to be suspended")
        until(lambda: not _active(running), "all pods to go")
        kept = running.status()["round"]
        assert held_in + 2 <= kept < ROUNDS
        _suspend(running, False)
        until(lambda: running.status()["round"] != kept, "the next round", END_SECONDS)
        assert running.status()["round"] > kept
        assert running.ended()["model"]["sha256"] == undisturbed
    assert pods.doubles == []
    assert pods.made == {
        "aggregator": 3,
        "north/guard": 3,
        "north/trainer": 3,
        "east/guard": 3,
        "east/trainer": 3,
    }


def test_objects_that_are_deleted_come_back(
    kubectl: Kubectl, running: ClusterFederation, undisturbed: str
) -> None:
    home, north = running.home, running.silo("north")
    ours, agent = f"{running.job['metadata']['name']}-aggregator", _agent(running, north)
    with watched_pods(kubectl, running.job) as pods:
        with held(running):
            address = home.get("service", ours)["spec"]["clusterIP"]
            for kind in ("service", "role", "rolebinding", "networkpolicy", "configmap"):
                _restored(home, kind, ours)
            assert home.get("service", ours)["spec"]["clusterIP"] == address
            _restored(north, "configmap", agent)
            for component in ("guard", "trainer"):
                _restored(north, "networkpolicy", f"{agent}-{component}")

            parts = [(home, "aggregator"), (north, "guard"), (north, "trainer")]
            before = [running.pod(*part) for part in parts]
            # Nobody may read the Secret, so nobody sees that it is gone before a pod wants it: the one that takes the
            # place of a pod whose account is gone.
            (secret,) = _of_job(running, home, "secrets")
            home.delete("secret", secret["metadata"]["name"])
            _restored(home, "serviceaccount", ours)
            for component in ("guard", "trainer"):
                _restored(north, "job", f"{agent}-{component}")
            for part, name in zip(parts, before, strict=True):
                running.pod(*part, besides=name)
            home.get("secret", secret["metadata"]["name"])

            before = [running.pod(*part) for part in parts]
            _restored(home, "job", ours)
            _restored(north, "siloagent", agent)
            for part, name in zip(parts, before, strict=True):
                running.pod(*part, besides=name)
        assert running.ended()["model"]["sha256"] == undisturbed
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
    claims = [_of_job(running, place, "persistentvolumeclaims") for place in places]
    running.home.delete("federatedjob", running.job["metadata"]["name"])
    assert not any(_of_job(running, place, "siloagents") for place in places), "the finalizer waits for them"
    children = "jobs,pods,services,configmaps,networkpolicies,roles"
    until(lambda: not any(_of_job(running, place, children) for place in places), "what was the job's to go")
    for place, before in zip(places, claims, strict=True):
        (claim,) = before
        (after,) = _of_job(running, place, "persistentvolumeclaims")
        assert (after["metadata"]["uid"], after["status"]["phase"]) == (claim["metadata"]["uid"], "Bound")


def _leader(operator: Namespace) -> str:
    return until(lambda: leader(operator.kubectl), "an operator that leads")


def _agent(running: ClusterFederation, place: Namespace) -> str:
    (agent,) = _of_job(running, place, "siloagents")
    return str(agent["metadata"]["name"])


def _of_job(running: ClusterFederation, place: Namespace, kind: str) -> list[Object]:
    """What belongs to this job: earlier ones left their volumes."""
    return place.select(kind, f"fedsilo.io/job-name={running.job['metadata']['name']}")


def _restored(place: Namespace, kind: str, name: str) -> None:
    """Delete an object, and wait until it is there again."""
    before = place.get(kind, name)["metadata"]["uid"]
    place.run("delete", kind, name, "--wait=false")

    def another() -> Object | None:
        found = place.find(kind, name)
        return found if found and found["metadata"]["uid"] != before else None

    until(another, f"another {kind} {name} in {place.name}")


def _suspend(running: ClusterFederation, suspend: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(suspend).lower()}}}}}'
    running.home.run("patch", "federatedjob", running.job["metadata"]["name"], "--type=merge", "-p", patch)


def _active(running: ClusterFederation) -> list[str]:
    """Names of the job's pods that have not ended."""
    pods = [pod for place in running.namespaces for pod in _of_job(running, place, "pods")]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
