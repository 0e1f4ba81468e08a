"""Drain the node while a job runs: one part of it is evicted, no other until that one runs again, and the model is the
same, bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.chaos.disturbance import hold_trainer, of_job
from tests.cluster.federation import ClusterFederation
from tests.cluster.namespace import Namespace, wait_until
from tests.pages import runs
from tests.terminal import Terminal

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_operator")]

WATCHED_SECONDS = 10
"""How long the others ask in vain, while the one that was evicted finds no node."""


@runs(
    "docs/operator.md",
    "kubectl get poddisruptionbudgets -A -l app.kubernetes.io/managed-by=fedsilo-operator",
)
def test_a_drain_moves_one_part_of_a_job_at_a_time(
    kubectl: Kubectl, running: ClusterFederation, undisturbed_digest: str, terminal: Terminal
) -> None:
    places = [running.home, running.silo("north"), running.silo("east")]
    with hold_trainer(running):
        wait_until(lambda: all(_budgets(running, place) for place in places), "a budget of each part")
        shown = terminal.type(terminal.commands[0])
        assert all(_budgets(running, place)[0] in shown for place in places)
        assert not _ask_evictions(running, places), "nobody drains the node"
        with _cordoned_node(kubectl):
            first = wait_until(
                lambda: next((place for place in places if _ask_evictions(running, [place])), None),
                "an eviction",
            )
            until = time.monotonic() + WATCHED_SECONDS
            while time.monotonic() < until:
                assert not _ask_evictions(running, [place for place in places if place != first])
        wait_until(lambda: _all_run(running, places), "all parts to run again")
    assert running.wait_complete()["model"]["sha256"] == undisturbed_digest
    wait_until(lambda: not any(_budgets(running, place) for place in places), "the budgets to go")


def _budgets(running: ClusterFederation, place: Namespace) -> list[str]:
    return [item["metadata"]["name"] for item in of_job(running, place, "poddisruptionbudgets")]


def _all_run(running: ClusterFederation, places: list[Namespace]) -> bool:
    pods = [item for place in places for item in of_job(running, place, "pods")]
    ready = [item for item in pods if item["status"]["phase"] == "Running"]
    return len(ready) == 5 and not any("deletionTimestamp" in item["metadata"] for item in pods)


def _ask_evictions(running: ClusterFederation, places: list[Namespace]) -> list[str]:
    """Ask for the eviction of all pods there, as a drain does; the pods of which it was granted."""
    pods = [(place, item["metadata"]["name"]) for place in places for item in of_job(running, place, "pods")]
    return [name for place, name in pods if _evict(place, name)]


def _evict(place: Namespace, pod: str) -> bool:
    wanted = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": place.name},
    }
    path = f"/api/v1/namespaces/{place.name}/pods/{pod}/eviction"
    try:
        place.kubectl.run("create", "--raw", path, "-f", "-", stdin=json.dumps(wanted))
    except KubectlError as error:
        assert "disruption budget" in str(error), error
        return False
    return True


@contextmanager
def _cordoned_node(kubectl: Kubectl) -> Iterator[None]:
    (node,) = kubectl.get("nodes")["items"]
    kubectl.run("cordon", node["metadata"]["name"])
    try:
        yield
    finally:
        kubectl.run("uncordon", node["metadata"]["name"])
