"""What a person compares at the end of `fedsilo run`, as rows by column name: all metrics, the main one first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedsilo.api.figures import main_first, main_name

if TYPE_CHECKING:
    from fedsilo.local.progress import RunOutcome

ALONE_FILE, COMPARISON_FILE = "alone.csv", "compared.csv"
"""Files of the rows of one job, in its directory, and of several jobs, in the one around theirs."""

POOLED, FEDERATED = "all, pooled", "all, federated"
"""What a model was trained on, beside each silo alone."""

_FACTS = ("name", "classes", "samples")
"""What a baseline says of a model besides its scores."""


def alone_rows(outcome: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each silo alone, one for all silos' data pooled and one for the federation.

    :param outcome: what `fedsilo run --json` prints of the run.
    :param baseline: `alone` and `pooled`, see `fedsilo.local.baseline.scores`.
    """
    found = [(f"{silo['name']} alone", silo) for silo in baseline["alone"]]
    for name, trained in (*found, (POOLED, baseline["pooled"])):
        scores = {metric: value for metric, value in trained.items() if metric not in _FACTS}
        yield _row(outcome, {"trained on": name, "samples": trained["samples"]}, scores)
    yield _row(outcome, {"trained on": FEDERATED, "samples": outcome["samples"]}, outcome["metrics"])


def job_rows(outcomes: Sequence[RunOutcome]) -> Iterator[dict[str, Any]]:
    """A row for each of several jobs; `bytes` are those that a silo sent and fetched, mean over silos."""
    for outcome in outcomes:
        document = outcome.document
        facts = {name: document[name] for name in ("job", "method", "rounds", "samples", "seconds")}
        yield _row(document, {**facts, "bytes": outcome.exchanged}, document["metrics"])


def _row(outcome: Mapping[str, Any], facts: dict[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    return facts | {name: scores[name] for name in main_first(scores, main_name(outcome))}
