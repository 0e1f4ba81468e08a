"""Alerts and dashboard ask for metrics that exist. What promtool says of them is in tests/cluster/monitoring."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from charts.dashboard import dashboard, expressions
from charts.generate import CHARTS, ROOT
from fedsilo.metrics import BUILD_SERIES, Series
from tests.metrics_page import PROCESSES

RULES = yaml.safe_load((CHARTS / "fedsilo" / "files" / "rules.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]

SERIES = {series.name: series for declared in ((BUILD_SERIES,), *PROCESSES.values()) for series in declared}
TARGET = {"namespace", "pod", "instance", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""


def queries() -> list[str]:
    return [*expressions(), *(rule["expr"] for rule in ALERTS)]


def asked_for(query: str) -> Iterator[tuple[Series, set[str]]]:
    """The metrics of a query, each with the labels that it is selected by."""
    for name, labels in re.findall(r"\b((?:fedsilo|workqueue)_\w+)(?:\{([^}]*)\})?", query):
        series = SERIES.get(re.sub(r"_(bucket|sum|count)$", "", name)) or SERIES[name]
        assert (series.kind == "histogram") == (series.name != name), name
        yield series, set(re.findall(r"(\w+) *[=!]", labels))


@pytest.mark.parametrize("query", queries())
def test_queries_ask_for_metrics_and_labels_that_exist(query: str) -> None:
    found = list(asked_for(query))
    assert found
    for series, labels in found:
        assert labels <= {*series.labels, *TARGET}, series.name
    known = {label for series, _ in found for label in (*series.labels, *TARGET)}
    for grouped in re.findall(r"\b(?:by|on) *\(([^)]*)\)", query):
        assert set(re.split(r"[ ,]+", grouped)) <= known


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_alerts_speak_of_labels_that_they_have(rule: dict[str, object]) -> None:
    known = {label for series, _ in asked_for(str(rule["expr"])) for label in series.labels}
    assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= known
    assert set(rule) >= {"alert", "expr", "labels", "annotations"}


def test_each_alert_has_a_row_a_paragraph_and_a_link_to_it() -> None:
    names = {rule["alert"] for rule in ALERTS}
    headings = re.findall(r"^## (Fedsilo\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    rows = re.findall(r"^\| `(Fedsilo\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert names == set(headings) == set(rows)
    for rule in ALERTS:
        link = rule["annotations"]["runbook_url"]
        assert link == f"https://fedsilo.io/docs/alerts.html#{rule['alert'].lower()}"


def test_panels_fill_the_grid_and_have_numbers_of_their_own() -> None:
    panels = json.loads(dashboard())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels) == 12
    assert {panel["gridPos"]["w"] for panel in panels} == {8}
    for panel in panels:
        for target in panel["targets"]:
            labels = {label for series, _ in asked_for(target["expr"]) for label in series.labels}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_kustomize_has_the_rules_and_the_dashboard_of_the_chart() -> None:
    folder = ROOT / "manifests" / "monitoring"
    assert yaml.safe_load((folder / "rules.yaml").read_text())["spec"] == RULES
    made = yaml.safe_load((folder / "dashboard.yaml").read_text())
    assert json.loads(made["data"]["fedsilo.json"]) == json.loads(dashboard())
