"""The table of docs/metrics.md, from what the processes declare: `python -m tests.metrics_page`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from fedsilo.institution import metrics as institution
from fedsilo.metrics import Series
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
    for process, declared in PROCESSES.items():
        for series in declared:
            labels = ", ".join(f"`{label}`" for label in series.labels)
            rows.append(f"| {process} | `{series.name}` | {series.kind} | {labels} | {series.help} |")
    return "\n".join([PAGE.read_text().partition(MARKER)[0] + MARKER, "", *rows, ""])


def documented_metrics() -> dict[str, set[tuple[str, str]]]:
    """Process -> name and type of each of its metrics, as the page says."""
    found: dict[str, set[tuple[str, str]]] = {process: set() for process in PROCESSES}
    for line in PAGE.read_text().partition(MARKER)[2].splitlines()[4:]:
        process, name, kind = (cell.strip(" `") for cell in line.split("|")[1:4])
        found[process].add((name, kind))
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
