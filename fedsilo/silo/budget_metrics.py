"""Privacy budgets as metrics: of a cluster's Silos by its operator, of a silo elsewhere by `fedsilo silo serve`."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.budgets import BudgetStatus
from fedsilo.metrics import Sample, Series

DATASET = ("silo_namespace", "silo", "dataset")

SPENT_EPSILON = Series(
    "fedsilo_privacy_epsilon_spent",
    "gauge",
    DATASET,
    "Epsilon that is spent of a dataset's privacy budget, over all jobs; None before anything was charged.",
)
BUDGET = Series(
    "fedsilo_privacy_epsilon_budget", "gauge", DATASET, "A dataset's privacy budget.", renamed=False
)
LEFT_EPSILON = Series(
    "fedsilo_privacy_epsilon_left",
    "gauge",
    DATASET,
    "What another job may spend: neither spent nor reserved by a job that has not ended.",
    renamed=False,
)

DECLARED_SERIES = (SPENT_EPSILON, BUDGET, LEFT_EPSILON)


def read(namespace: str, silo: str, budget: BudgetStatus) -> Iterator[Sample]:
    """One budget as it is now."""
    labels = (namespace, silo, budget.dataset)
    yield Sample(SPENT_EPSILON, labels, budget.spent)
    yield Sample(BUDGET, labels, budget.epsilon)
    yield Sample(LEFT_EPSILON, labels, budget.left)
