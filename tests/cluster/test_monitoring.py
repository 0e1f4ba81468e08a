"""Metrics, logs, alerts and dashboard of one federation: while all is well, and when a trainer is killed for good."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.cluster.packages import unpack_package
from hack.images import TOOLBOX
from hack.operator import leader
from tests.cluster.federation import ClusterFederation, federation, signal
from tests.cluster.monitoring.test_rules import RULES, run
from tests.cluster.namespace import Namespace, pod, wait_until
from tests.cluster.reach import Destination, reached_destinations
from tests.metrics_page import documented_metrics
from tests.pages import runs
from tests.scraping import Scrape
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(600)

PORT = 8080
DASHBOARD_PORT = 8081

SCRAPE_SECONDS = 30.0
"""Between two scrapes that Prometheus makes unless told otherwise; all must be known within them."""

SILOS = ("north", "east", "south", "west")


@pytest.fixture(scope="module")
def running(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """A federation with a complete round and many to come. What is killed in it is not started again.

    One trainer is halted, so that the machine is free for whoever looks.
    """
    with federation(kubectl, "fedavg.yaml", training={"rounds": 200}, backoffLimit=0) as found:
        found.apply()
        found.round_reached(1)
        south = found.silo("south")
        signal(south, found.pod(south, "trainer"), "SIGSTOP")
        yield found


@dataclass(frozen=True)
class Snapshot:
    """What the processes of the federation say while all is well.

    :param metrics: by component; the guard's is that of the silo `north`.
    :param logs: by component, that of the trainer of `north` included.
    """

    metrics: dict[str, Scrape]
    logs: dict[str, str]


@pytest.fixture(scope="module")
def healthy_snapshot(running: ClusterFederation, operator: Namespace) -> Snapshot:
    home, north = running.home, running.silo("north")
    pods = {
        "operator": (operator, leader(operator.kubectl)),
        "aggregator": (home, running.pod(home, "aggregator")),
        "guard": (north, running.pod(north, "guard")),
        "trainer": (north, running.pod(north, "trainer")),
    }
    return Snapshot(
        {name: scrape(*where) for name, where in pods.items() if name != "trainer"},
        {name: place.logs(found) for name, (place, found) in pods.items()},
    )


@pytest.fixture(scope="module")
def killed_federation(running: ClusterFederation, healthy_snapshot: Snapshot) -> ClusterFederation:
    """The federation after the death of north's trainer; the others go on."""
    north, south = running.silo("north"), running.silo("south")
    signal(south, running.pod(south, "trainer"), "SIGCONT")
    signal(north, running.pod(north, "trainer"), "SIGKILL")
    return running


def scrape(namespace: Namespace, name: str) -> Scrape:
    """What a pod answers, asked by the API server: a node reaches its pods whatever the policies."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}:{PORT}/proxy"
    assert namespace.kubectl.run("get", "--raw", f"{path}/healthz") == "ok\n"
    assert namespace.kubectl.run("get", "--raw", f"{path}/readyz") == "ok\n"
    return Scrape(namespace.kubectl.run("get", "--raw", f"{path}/metrics"))


def labels(running: ClusterFederation) -> dict[str, str]:
    metadata = running.job["metadata"]
    return {"job_namespace": metadata["namespace"], "job_name": metadata["name"]}


def test_every_process_serves_the_documented_metrics(
    running: ClusterFederation, healthy_snapshot: Snapshot
) -> None:
    job = labels(running)
    leads, aggregator, guard = (
        healthy_snapshot.metrics[name] for name in ("operator", "aggregator", "guard")
    )
    assert leads.declared == documented_metrics()["operator"]
    assert aggregator.declared == documented_metrics()["aggregator"]
    assert guard.declared == documented_metrics()["guard"]

    assert leads.values("fedsilo_job_state", **job) == {("Running",): 1}
    assert leads.value("fedsilo_job_round", **job) >= 1
    assert set(leads.values("fedsilo_job_silo_phase", **job)) == {("Running", silo) for silo in SILOS}
    assert aggregator.value("fedsilo_round_duration_seconds_count", **job) >= 1
    assert aggregator.value("fedsilo_silo_updates_total", **job, silo="north", result="accepted") >= 1
    assert guard.value("fedsilo_audit_events_total", **job, silo="north", event="departure") >= 1


@runs("docs/metrics.md", "kubectl label namespace monitoring fedsilo.io/metrics=true")
def test_only_namespaces_that_are_named_reach_the_metrics(
    running: ClusterFederation, operator: Namespace, namespace: Namespace, terminal: Terminal
) -> None:
    """The institutions of the example open their guards to nobody."""
    east = running.silo("east")
    destinations = {
        component: Destination(where.get("pod", name)["status"]["podIP"], PORT)
        for component, where, name in (
            ("operator", operator, leader(operator.kubectl)),
            ("aggregator", running.home, running.pod(running.home, "aggregator")),
            ("guard", east, running.pod(east, "guard")),
        )
    }
    namespace.apply(pod("prometheus", TOOLBOX, ["sleep", "infinity"]))
    namespace.wait("pod", "prometheus", "condition=Ready")
    assert reached_destinations(namespace, "prometheus", destinations) == set()
    (command,) = terminal.commands
    assert terminal.type(command, {"monitoring": namespace.name}).endswith(" labeled\n")
    wait_until(
        lambda: reached_destinations(namespace, "prometheus", destinations) == {"operator", "aggregator"},
        "the policies to open",
    )


def test_logs_are_lines_of_json_about_the_job(running: ClusterFederation, healthy_snapshot: Snapshot) -> None:
    about = {"namespace": running.job["metadata"]["namespace"], "job": running.job["metadata"]["name"]}
    for component, more in (
        ("aggregator", {}),
        ("guard", {"silo": "north"}),
        ("trainer", {"silo": "north"}),
    ):
        lines = [json.loads(line) for line in healthy_snapshot.logs[component].splitlines()]
        assert lines, component
        assert all((about | more).items() <= line.items() for line in lines), component
    for line in healthy_snapshot.logs["operator"].splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()
    shown = running.kubectl.fedsilo(
        "logs", about["job"], "-n", about["namespace"], "--component", "aggregator"
    )
    assert not any(line.startswith("{") for line in shown.splitlines())


def test_everything_names_the_silo_whose_trainer_was_killed(
    killed_federation: ClusterFederation, operator: Namespace, tmp_path: Path
) -> None:
    job = labels(killed_federation)
    down = {"silo": "north", "phase": "Failed"}

    def counted_scrape() -> Scrape | None:
        found = scrape(operator, leader(operator.kubectl))
        return found if found.values("fedsilo_job_silo_phase", **job, **down) else None

    seen = wait_until(counted_scrape, "the metric", SCRAPE_SECONDS)
    alert = {"alertname": "FedsiloSiloDown", "alertstate": "firing", "severity": "info"}
    _require_alert(seen, job, job | down | alert, tmp_path)

    ready = killed_federation.condition("SilosReady")
    assert ready["status"] == "False"
    assert "north" in ready["message"]

    events = [
        each
        for each in killed_federation.home.select("events")
        if each["involvedObject"]["kind"] == "FederatedJob"
    ]
    told = [(each["type"], each["reason"], each["message"]) for each in events]
    warnings = [message for *kind, message in told if kind == ["Warning", "SiloFailed"]]
    assert len(warnings) == 1 and "north" in warnings[0], told

    page = _page(operator, job)
    (row,) = (member for member in page["members"] if member["name"] == "north")
    assert (row["agent"], row["tone"]) == ("Failed", "bad")
    assert "exit code 137" in row["message"]
    assert killed_federation.condition("Failed").get("status") != "True", "three silos are enough"


def test_series_go_with_their_job(kubectl: Kubectl, operator: Namespace) -> None:
    with federation(kubectl, "fedavg.yaml", suspend=True) as suspended:
        suspended.apply()
        home = ("job_namespace", suspended.home.name)
        wait_until(lambda: home in scrape(operator, leader(kubectl)).labels, "the series of the job")
        suspended.home.run("delete", "fj", suspended.job["metadata"]["name"], "--wait", timeout=90)
        wait_until(
            lambda: home not in scrape(operator, leader(kubectl)).labels, "the series of the job to go"
        )


def _series(labels_of: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels_of.items()))


def _require_alert(found: Scrape, job: dict[str, str], alert: dict[str, str], folder: Path) -> None:
    """Have Prometheus' own tool say that this scrape, and those after it, raise this alert about the job alone.

    :raises AssertionError: with what it found.
    """
    # Without the leader's own series, the alert that no operator leads would be raised too.
    samples = [
        sample
        for sample in found.samples
        if sample.name == "fedsilo_leader"
        or (sample.name.startswith("fedsilo_job_") and job.items() <= sample.labels.items())
    ]
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f"{sample.name}{{{_series(sample.labels)}}}", "values": f"{sample.value:g}x4"}
            for sample in samples
        ],
        "promql_expr_test": [
            {
                "expr": "ALERTS",
                "eval_time": "1m",
                "exp_samples": [{"labels": f"ALERTS{{{_series(alert)}}}", "value": 1}],
            }
        ],
    }
    (folder / "rules.yaml").write_text(RULES.read_text())
    (folder / "cases.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    promtool = unpack_package("prometheus") / "usr" / "bin" / "promtool"
    assert "SUCCESS" in run(promtool, "test", "rules", "cases.yaml", folder=folder)


def _page(operator: Namespace, job: dict[str, str]) -> Object:
    """The job's page of the dashboard, as the operator that leads serves it."""
    with operator.forward_port(f"pod/{leader(operator.kubectl)}", DASHBOARD_PORT) as port:
        address = f"http://127.0.0.1:{port}/api/jobs/{job['job_namespace']}/{job['job_name']}"
        with urllib.request.urlopen(address, timeout=30) as response:
            return dict(json.load(response))
