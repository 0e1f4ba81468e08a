"""Metrics and logs of a federation on the cluster: through the API server, and past the network policies."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX
from hack.operator import leader
from tests.cluster.federation import Federation, federation
from tests.cluster.namespace import Namespace, pod, until
from tests.cluster.reach import Place, reached
from tests.metrics_page import documented
from tests.pages import runs
from tests.scraping import Scrape
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(600)

PORT = 8080


@pytest.fixture(scope="module")
def running(kubectl: Kubectl, operator: Namespace) -> Iterator[Federation]:
    """A federation with a complete round and many to come."""
    with federation(kubectl, "fedavg.yaml", training={"rounds": 200}) as found:
        found.apply()
        found.round_reached(1)
        yield found


def scrape(namespace: Namespace, name: str) -> Scrape:
    """What a pod answers, asked by the API server: a node reaches its pods whatever the policies."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}:{PORT}/proxy"
    assert namespace.kubectl.run("get", "--raw", f"{path}/healthz") == "ok\n"
    assert namespace.kubectl.run("get", "--raw", f"{path}/readyz") == "ok\n"
    return Scrape(namespace.kubectl.run("get", "--raw", f"{path}/metrics"))


def labels(running: Federation) -> dict[str, str]:
    metadata = running.job["metadata"]
    return {"job_namespace": metadata["namespace"], "job_name": metadata["name"]}


def test_every_process_serves_the_documented_metrics(running: Federation, operator: Namespace) -> None:
    job, north = labels(running), running.silo("north")
    leads = scrape(operator, leader(operator.kubectl))
    aggregator = scrape(running.home, running.pod(running.home, "aggregator"))
    guard = scrape(north, running.pod(north, "guard"))
    assert leads.declared == documented()["operator"]
    assert aggregator.declared == documented()["aggregator"]
    assert guard.declared == documented()["guard"]

    assert leads.values("federated_job_state", **job) == {("Running",): 1}
    assert leads.value("federated_job_round", **job) >= 1
    phases = leads.values("federated_job_silo_phase", **job)
    assert set(phases) == {("Running", silo) for silo in ("north", "east", "south", "west")}
    assert aggregator.value("federated_round_duration_seconds_count", **job) >= 1
    assert aggregator.value("federated_silo_updates_total", **job, silo="north", result="accepted") >= 1
    assert guard.value("federated_audit_events_total", **job, silo="north", event="departure") >= 1


@runs("docs/metrics.md", "kubectl label namespace monitoring fedsilo.io/metrics=true")
def test_only_namespaces_that_are_named_reach_the_metrics(
    running: Federation, operator: Namespace, namespace: Namespace, terminal: Terminal
) -> None:
    """The institutions of the example open their guards to nobody."""
    north = running.silo("north")
    places = {
        component: Place(where.get("pod", name)["status"]["podIP"], PORT)
        for component, where, name in (
            ("operator", operator, leader(operator.kubectl)),
            ("aggregator", running.home, running.pod(running.home, "aggregator")),
            ("guard", north, running.pod(north, "guard")),
        )
    }
    namespace.apply(pod("prometheus", TOOLBOX, ["sleep", "infinity"]))
    namespace.wait("pod", "prometheus", "condition=Ready")
    assert reached(namespace, "prometheus", places) == set()
    (command,) = terminal.commands
    assert terminal.type(command, {"monitoring": namespace.name}).endswith(" labeled\n")
    until(
        lambda: reached(namespace, "prometheus", places) == {"operator", "aggregator"}, "the policies to open"
    )


def test_logs_are_lines_of_json_about_the_job(running: Federation, operator: Namespace) -> None:
    north = running.silo("north")
    about = {"namespace": running.job["metadata"]["namespace"], "job": running.job["metadata"]["name"]}
    for where, component, more in (
        (running.home, "aggregator", {}),
        (north, "guard", {"silo": "north"}),
        (north, "trainer", {"silo": "north"}),
    ):
        lines = [json.loads(line) for line in where.logs(running.pod(where, component)).splitlines()]
        assert lines, component
        assert all((about | more).items() <= line.items() for line in lines), component
    for line in operator.logs(leader(operator.kubectl)).splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()
    shown = running.kubectl.fedsilo(
        "logs", about["job"], "-n", about["namespace"], "--component", "aggregator"
    )
    assert not any(line.startswith("{") for line in shown.splitlines())


def test_series_go_with_their_job(running: Federation, operator: Namespace) -> None:
    """The last test of this file: the job is gone afterwards."""
    running.home.run("delete", "federatedjob", running.job["metadata"]["name"], "--wait", timeout=90)
    home = running.home.name
    until(
        lambda: ("job_namespace", home) not in scrape(operator, leader(operator.kubectl)).labels,
        "the series of the job to go",
    )
