"""Alerts and dashboard as Prometheus itself understands them. It needs no cluster, but a Debian package."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from charts.dashboard import expressions
from charts.generate import CHARTS
from hack.cluster.packages import unpack_package

RULES = CHARTS / "fedsilo" / "files" / "rules.yaml"
CASES = Path(__file__).with_name("rules.yaml")
PAGE_ADDRESS = "https://fedsilo.io/docs/alerts.html#"

VARIABLES = {"$__rate_interval": "5m", "$job_namespace": ".*", "$job_name": ".*"}
"""Grafana's, and what they may stand for."""


@pytest.fixture(scope="module")
def promtool() -> Path:
    return unpack_package("prometheus") / "usr" / "bin" / "promtool"


def run(promtool: Path, *arguments: str, folder: Path) -> str:
    command = [str(promtool), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_correct(promtool: Path) -> None:
    count = len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    assert f"SUCCESS: {count} rules found" in run(promtool, "check", "rules", str(RULES), folder=RULES.parent)


def test_alerts_come_when_they_should_and_not_before(promtool: Path, tmp_path: Path) -> None:
    cases = yaml.safe_load(CASES.read_text())
    for expected in (case for test in cases["tests"] for case in test["alert_rule_test"]):
        for alert in expected["exp_alerts"]:
            alert["exp_annotations"] |= {"runbook_url": PAGE_ADDRESS + expected["alertname"].lower()}
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases | {"rule_files": ["rules.yaml"]}))
    assert "SUCCESS" in run(promtool, "test", "rules", "cases.yaml", folder=tmp_path)
    tried = {case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"]}
    assert tried == {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}


def test_queries_of_the_dashboard_parse(promtool: Path, tmp_path: Path) -> None:
    pattern = "|".join(re.escape(name) for name in sorted(VARIABLES, key=len, reverse=True))
    rules = [
        {"record": f"query:{number}", "expr": re.sub(pattern, lambda found: VARIABLES[found[0]], query)}
        for number, query in enumerate(expressions())
    ]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    said = run(promtool, "check", "rules", "queries.yaml", folder=tmp_path)
    assert f"SUCCESS: {len(rules)} rules found" in said
