"""A silo's trainer is killed for good: metric, alert, condition, Event and dashboard all name that silo."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.cluster.kubectl import Kubectl, Object
from hack.cluster.packages import unpacked
from hack.operator import leader
from tests.cluster.federation import Federation, federation, signal
from tests.cluster.monitoring.test_rules import RULES, run
from tests.cluster.namespace import Namespace, until
from tests.cluster.test_watching import labels, scrape
from tests.scraping import Scrape

pytestmark = pytest.mark.timeout(600)

SCRAPES = 30.0
"""Seconds between two scrapes that Prometheus makes unless told otherwise; all must be known within them."""

DASHBOARD = 8081


@pytest.fixture
def running(kubectl: Kubectl, operator: Namespace) -> Iterator[Federation]:
    """A federation that goes on with three of its four silos; what is killed in it is not started again."""
    with federation(kubectl, "fedavg.yaml", training={"rounds": 200}, backoffLimit=0) as found:
        found.apply()
        found.round_reached(1)
        yield found


def test_everything_names_the_silo_whose_trainer_was_killed(
    running: Federation, operator: Namespace, tmp_path: Path
) -> None:
    place = running.silo("north")
    job = labels(running)
    signal(place, running.pod(place, "trainer"), "SIGKILL")

    down = {"silo": "north", "phase": "Failed"}
    seen = until(lambda: _such(scrape(operator, leader(operator.kubectl)), job | down), "the metric", SCRAPES)
    alert = {"alertname": "FedsiloSiloDown", "alertstate": "firing", "severity": "info"}
    _raised(seen, job, job | down | alert, tmp_path)

    ready = running.condition("SilosReady")
    assert ready["status"] == "False"
    assert "north" in ready["message"]

    events = [
        each for each in running.home.select("events") if each["involvedObject"]["kind"] == "FederatedJob"
    ]
    warnings = [
        each["message"] for each in events if (each["type"], each["reason"]) == ("Warning", "SiloFailed")
    ]
    assert len(warnings) == 1 and "north" in warnings[0], [
        (each["reason"], each["message"]) for each in events
    ]

    page = _page(operator, job)
    (row,) = (member for member in page["members"] if member["name"] == "north")
    assert (row["agent"], row["tone"]) == ("Failed", "bad")
    assert "exit code 137" in row["message"]
    assert running.condition("Failed").get("status") != "True", "three silos are enough"


def _such(found: Scrape, wanted: dict[str, str]) -> Scrape | None:
    return found if found.values("federated_job_silo_phase", **wanted) else None


def _series(labels_of: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels_of.items()))


def _raised(found: Scrape, job: dict[str, str], alert: dict[str, str], folder: Path) -> None:
    """Have Prometheus' own tool say that this scrape, and those after it, raise this alert about the job alone.

    :raises AssertionError: with what it found.
    """
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f"{sample.name}{{{_series(sample.labels)}}}", "values": f"{sample.value:g}x4"}
            for sample in found.samples
            if sample.name.startswith("federated_job_") and job.items() <= sample.labels.items()
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
    promtool = unpacked("prometheus") / "usr" / "bin" / "promtool"
    assert "SUCCESS" in run(promtool, "test", "rules", "cases.yaml", folder=folder)


def _page(operator: Namespace, job: dict[str, str]) -> Object:
    """The job's page of the dashboard, as the operator that leads serves it."""
    with operator.forwarded(f"pod/{leader(operator.kubectl)}", DASHBOARD) as port:
        address = f"http://127.0.0.1:{port}/api/jobs/{job['job_namespace']}/{job['job_name']}"
        with urllib.request.urlopen(address, timeout=30) as response:
            return dict(json.load(response))
