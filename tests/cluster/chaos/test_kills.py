"""Kill any process of a job while it runs: it comes back, and the model is the same, bit for bit."""

from __future__ import annotations

import pytest

from hack.cluster.kubectl import Kubectl
from hack.operator import leader
from tests.cluster.chaos.disturbance import ROUNDS, agent_of, hold_trainer, of_job
from tests.cluster.federation import END_SECONDS, ClusterFederation, signal
from tests.cluster.namespace import Namespace, wait_until
from tests.cluster.pod_history import watched_pods

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_operator")]


def test_processes_that_are_killed_start_again(
    kubectl: Kubectl, own_operator: Namespace, running: ClusterFederation, undisturbed_digest: str
) -> None:
    home, north, east = running.home, running.silo("north"), running.silo("east")
    with watched_pods(kubectl, running.job) as pods:
        with hold_trainer(running):
            frozen = _leader(own_operator)
            signal(own_operator, frozen, "SIGSTOP")
            victims = [(home, "aggregator"), (north, "guard"), (north, "trainer"), (east, "guard")]
            before = [running.pod(place, component) for place, component in victims]
            home.run("delete", "pod", before[0], "--wait=false")
            north.run("delete", "pod", before[1], "--wait=false")
            signal(north, before[2], "SIGKILL")
            # This one only an operator can bring back: the next that leads.
            east.delete("job", f"{agent_of(running, east)}-guard")
            wait_until(lambda: leader(own_operator.kubectl) not in ("", frozen), "another operator to lead")
            signal(own_operator, frozen, "SIGCONT")
            for (place, component), name in zip(victims, before, strict=True):
                running.pod(place, component, besides=name)
            own_operator.run("delete", "pod", _leader(own_operator), "--wait=false")
            signal(east, running.pod(east, "trainer"), "SIGKILL")
            held_in = running.status()["round"]
        running.round_reached(held_in + 2)

        with hold_trainer(running):
            _suspend(running, True)
            wait_until(
                lambda: running.condition("Suspended").get("status") == "True", "the job to be suspended"
            )
        wait_until(lambda: not _active_pods(running), "all pods to go")
        kept = running.status()["round"]
        assert held_in + 2 <= kept < ROUNDS
        _suspend(running, False)
        wait_until(lambda: running.status()["round"] != kept, "the next round", END_SECONDS)
        assert running.status()["round"] > kept
        assert running.wait_complete()["model"]["sha256"] == undisturbed_digest
    assert pods.doubles == []
    assert pods.made == {
        "aggregator": 3,
        "north/guard": 3,
        "north/trainer": 3,
        "east/guard": 3,
        "east/trainer": 3,
    }


def _leader(operator: Namespace) -> str:
    return wait_until(lambda: leader(operator.kubectl), "an operator that leads")


def _suspend(running: ClusterFederation, suspend: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(suspend).lower()}}}}}'
    running.home.run("patch", "federatedjob", running.job["metadata"]["name"], "--type=merge", "-p", patch)


def _active_pods(running: ClusterFederation) -> list[str]:
    """Names of the job's pods that have not ended."""
    pods = [pod for place in running.namespaces for pod in of_job(running, place, "pods")]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
