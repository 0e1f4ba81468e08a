"""What is spent of privacy budgets as a table, on a machine and on a cluster alike."""

from __future__ import annotations

from collections.abc import Sequence

from fedsilo.api.budgets import BudgetJob, BudgetStatus
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.columns import columns

HEADINGS = ("DATASET", "UNIT", "EPSILON", "DELTA", "SPENT", "RESERVED", "LEFT", "BY JOB")
NUMBERS = (2, 3, 4, 5, 6)


def budget_row(budget: BudgetStatus) -> tuple[str, ...]:
    """The cells of one budget."""
    figures = (budget.spent, budget.reserved, budget.left)
    return (
        plain_line(budget.dataset),
        budget.unit,
        f"{budget.epsilon:g}",
        f"{budget.delta:g}",
        *(f"{figure:.4g}" for figure in figures),
        ", ".join(map(_job, budget.jobs)) or "-",
    )


def budget_table(rows: Sequence[tuple[str, ...]], silos: Sequence[str] = ()) -> str:
    """Rows of `budget_row`, each after the name of its silo where there are several."""
    if not silos:
        return columns([HEADINGS, *rows], NUMBERS)
    named = [(silo, *row) for silo, row in zip(silos, rows, strict=True)]
    return columns([("SILO", *HEADINGS), *named], [place + 1 for place in NUMBERS])


def _job(job: BudgetJob) -> str:
    kept = f" ({job.reserved:.4g} reserved)" if job.reserved else ""
    return f"{plain_line(job.job)} {job.spent:.4g}{kept}"
