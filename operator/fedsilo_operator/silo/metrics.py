"""The Silos as metrics: what is left of their privacy budgets, as their statuses say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pydantic import ValidationError

from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.observed import Object, status_of
from fedsilo.metrics import Sample
from fedsilo.silo import budget_metrics
from fedsilo_operator.objects import ref_of

DECLARED_SERIES = budget_metrics.DECLARED_SERIES


def read(silos: Iterable[Object]) -> Iterator[Sample]:
    """The Silos' metrics as they are now.

    :param silos: all Silos.
    """
    for silo in silos:
        ref = ref_of(silo)
        for found in status_of(silo).get("privacyBudget") or ():
            with suppress(
                ValidationError
            ):  # another version's status may not take the operator's metrics away
                budget = BudgetStatus.model_validate(found)
                yield from budget_metrics.read(ref.namespace, ref.name, budget)
