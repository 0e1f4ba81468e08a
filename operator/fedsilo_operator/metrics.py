"""Everything that an operator or a connector serves at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.metrics import Exposition, Sample
from fedsilo_operator.cluster import requests
from fedsilo_operator.job import metrics as jobs
from fedsilo_operator.objects import FEDERATED_JOB, SILO_KIND
from fedsilo_operator.runtime import metrics as runtime
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store
from fedsilo_operator.silo import metrics as silos

DECLARED_SERIES = (
    *jobs.DECLARED_SERIES,
    *runtime.DECLARED_SERIES,
    *requests.DECLARED_SERIES,
    *silos.DECLARED_SERIES,
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
            yield from silos.read(store.select(SILO_KIND))

    return Exposition(program, DECLARED_SERIES, read)
