"""The table of docs/metrics.md, from what the processes declare: `python -m tests.metrics_page`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain

from prometheus_client import CollectorRegistry, ProcessCollector

from fedsilo.institution import metrics as institution
from fedsilo.metrics import BUILD_SERIES, Series
from fedsilo_agent.guard import metrics as guard
from fedsilo_aggregator import metrics as aggregator
from fedsilo_operator import metrics as operator
from fedsilo_operator.gateway import metrics as gateway
from tests.paths import ROOT

PAGE = ROOT / "docs" / "metrics.md"
MARKER = "<!-- Below this line: `make metrics`, from the code -->"

PROCESSES: Mapping[str, Sequence[Series]] = {
    "operator": operator.DECLARED_SERIES,
    "aggregator": aggregator.DECLARED_SERIES,
    "guard": guard.DECLARED_SERIES,
    "gateway": gateway.DECLARED_SERIES,
    "fedsilo silo serve": institution.DECLARED_SERIES,
}


def page() -> str:
    """The page with its table written anew."""
    rows = ["| process | metric | type | labels | meaning |", "|---|---|---|---|---|"]
    for series in dict.fromkeys(chain((BUILD_SERIES,), *PROCESSES.values())):
        who = [process for process, declared in PROCESSES.items() if series in declared] or ["each"]
        labels = ", ".join(f"`{label}`" for label in series.labels)
        rows.append(f"| {', '.join(who)} | `{series.name}` | {series.kind} | {labels} | {series.help} |")
    for name, kind, meaning in process_metrics():
        rows.append(f"| each | `{name}` | {kind} |  | {meaning} |")
    return "\n".join([PAGE.read_text().partition(MARKER)[0] + MARKER, "", *rows, ""])


def process_metrics() -> list[tuple[str, str, str]]:
    """Name, type and meaning of what the client's library says of a process."""
    families = ProcessCollector(registry=CollectorRegistry()).collect()
    return [(one.name + "_total" * (one.type == "counter"), one.type, one.documentation) for one in families]


def documented_metrics() -> dict[str, set[tuple[str, str]]]:
    """Process -> name and type of each of its metrics, as the page says, and by former names."""
    found: dict[str, set[tuple[str, str]]] = {process: set() for process in ("each", *PROCESSES)}
    for line in PAGE.read_text().partition(MARKER)[2].splitlines()[4:]:
        processes, name, kind = (cell.strip(" `") for cell in line.split("|")[1:4])
        for process in processes.split(", "):
            found[process].add((name, kind))
    former = {one.name: one.former_name for declared in PROCESSES.values() for one in declared}
    common = found.pop("each")
    return {
        process: common | names | {(old, kind) for name, kind in names if (old := former[name])}
        for process, names in found.items()
    }


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
