"""Everything that an operator or a connector serves at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pydantic import ValidationError

from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.observed import Object, status_of
from fedsilo.metrics import Exposition, Sample
from fedsilo.silo import budget_metrics
from fedsilo_operator.cluster import requests
from fedsilo_operator.job import metrics as jobs
from fedsilo_operator.objects import FEDERATED_JOB, SILO_KIND, ref_of
from fedsilo_operator.runtime import metrics as runtime
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store

DECLARED_SERIES = (
    *jobs.DECLARED_SERIES,
    *runtime.DECLARED_SERIES,
    *requests.DECLARED_SERIES,
    *budget_metrics.DECLARED_SERIES,
)


def exposition(program: str, operator: Operator, store: Store, counts: requests.RequestTotals) -> Exposition:
    """The metrics that the operator serves; those of objects only while it leads, so that none is counted twice.

    :param program: what the operator is part of.
    :param counts: of its requests to the API server.
    """

    def read() -> Iterator[Sample]:
        yield from runtime.read(operator)
        yield from counts.read()
        if operator.leading:
            yield from jobs.read(store.select(FEDERATED_JOB))
            for silo in store.select(SILO_KIND):
                yield from _budgets(silo)

    return Exposition(program, DECLARED_SERIES, read)


def _budgets(silo: Object) -> Iterator[Sample]:
    ref = ref_of(silo)
    for found in status_of(silo).get("privacyBudget") or ():
        with suppress(ValidationError):  # whoever may write a status may not take the operator's metrics away
            yield from budget_metrics.read(ref.namespace, ref.name, BudgetStatus.model_validate(found))
