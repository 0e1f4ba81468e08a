"""The Grafana dashboard as data: every panel with its queries and its place; `python -m charts.generate` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
JOB_FILTER: Final = 'job_namespace=~"$job_namespace",job_name=~"$job_name"'
THIRD: Final = 8
"""Of the 24 columns of Grafana's grid."""
HEIGHT: Final = 8


@dataclass(frozen=True)
class Panel:
    """A graph, or a row of numbers.

    :param queries: legend -> PromQL; a legend may name labels.
    :param unit: Grafana's name of it.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    help: str = ""


ROWS: Final[Sequence[Sequence[Panel]]] = (
    (
        Panel("Jobs by phase", {"{{state}}": "sum by (state) (fedsilo_jobs)"}, kind="stat"),
        Panel(
            "Rounds complete",
            {
                "{{job_name}}": f"max by (job_namespace, job_name) (fedsilo_job_round{{{JOB_FILTER}}})",
                "{{job_name}}, in all": f"max by (job_namespace, job_name) (fedsilo_job_rounds{{{JOB_FILTER}}})",
            },
        ),
        Panel(
            "Score",
            {
                "{{job_name}}: {{metric}}": "max by (job_namespace, job_name, metric) "
                f"(fedsilo_job_score{{{JOB_FILTER}}})"
            },
            help="Every metric of the last evaluation; shares are from 0 to 1.",
        ),
    ),
    (
        Panel(
            "Duration of rounds",
            {
                "median": "histogram_quantile(0.5, sum by (le) "
                f"(rate(fedsilo_round_duration_seconds_bucket{{{JOB_FILTER}}}[$__rate_interval])))",
                "{{job_name}}, open": "max by (job_namespace, job_name) "
                f"(fedsilo_round_elapsed_seconds{{{JOB_FILTER}}})",
                "{{job_name}}, deadline": "max by (job_namespace, job_name) "
                f"(fedsilo_round_deadline_seconds{{{JOB_FILTER}}})",
            },
            unit="s",
            help="Open to the silos: what a deadline counts.",
        ),
        Panel(
            "Silos awaited",
            {
                "{{job_name}}: {{silo}}": "max by (job_namespace, job_name, silo) "
                f"(fedsilo_silo_awaited{{{JOB_FILTER}}}) > 0"
            },
            help="1 while the open round waits for the silo.",
        ),
        Panel(
            "Silos not heard from",
            {
                "{{job_name}}: {{silo}}": "time() - max by (job_namespace, job_name, silo) "
                f"(fedsilo_silo_last_report_timestamp_seconds{{{JOB_FILTER}}})"
            },
            unit="s",
            help="A guard asks every 25 s.",
        ),
    ),
    (
        Panel(
            "Bytes per silo",
            {
                "{{silo}}, {{direction}}": "sum by (silo, direction) "
                f"(increase(fedsilo_silo_bytes_total{{{JOB_FILTER}}}[$__rate_interval]))"
            },
            unit="bytes",
            help="As the aggregator sees it: updates received, models sent.",
        ),
        Panel(
            "Refused updates and requests",
            {
                "{{job_name}}: {{reason}}": "sum by (job_name, reason) "
                f"(increase(fedsilo_rejected_updates_total{{{JOB_FILTER}}}[$__rate_interval])) > 0"
            },
        ),
        Panel(
            "Silos by phase",
            {
                "{{phase}}": "count by (phase) (max by (job_namespace, job_name, silo, phase) "
                f"(fedsilo_job_silo_phase{{{JOB_FILTER}}}))"
            },
        ),
    ),
    (
        Panel("Queue depth", {"{{name}}": "sum by (name) (workqueue_depth)"}),
        Panel(
            "Duration of reconciles, 99 %",
            {
                "{{controller}}": "histogram_quantile(0.99, sum by (controller, le) "
                "(rate(fedsilo_reconcile_duration_seconds_bucket[$__rate_interval])))"
            },
            unit="s",
        ),
        Panel(
            "Reconciles that did not succeed",
            {
                "{{controller}}: {{result}}": "sum by (controller, result) "
                '(increase(fedsilo_reconcile_total{result!="success"}[$__rate_interval]))'
            },
        ),
    ),
)


def expressions() -> list[str]:
    """Every query, with Grafana's variables in it."""
    return [query for row in ROWS for panel in row for query in panel.queries.values()]


def dashboard() -> str:
    """The file that Grafana reads."""
    content = {
        "title": "fedsilo",
        "uid": "fedsilo",
        "tags": ["fedsilo"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return json.dumps(content, indent=1) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    for name, label in (("job_namespace", "Namespace"), ("job_name", "Job")):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": f"label_values(fedsilo_job_info, {name})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    for y, row in enumerate(ROWS):
        for x, panel in enumerate(row):
            yield {
                "id": y * len(row) + x + 1,
                "title": panel.title,
                "description": panel.help,
                "type": panel.kind,
                "datasource": SOURCE,
                "gridPos": {"x": x * THIRD, "y": y * HEIGHT, "w": THIRD, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + number),
                        "datasource": SOURCE,
                        "expr": query,
                        "legendFormat": legend,
                    }
                    for number, (legend, query) in enumerate(panel.queries.items())
                ],
            }
