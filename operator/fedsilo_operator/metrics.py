"""Everything that an operator serves at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.metrics import Exposition, Sample
from fedsilo_operator.job import metrics as jobs
from fedsilo_operator.objects import FEDERATED_JOB
from fedsilo_operator.runtime import metrics as runtime
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store

DECLARED_SERIES = (*jobs.DECLARED_SERIES, *runtime.DECLARED_SERIES)


def exposition(operator: Operator, store: Store) -> Exposition:
    """The metrics that the operator serves; those of jobs only while it leads, so that no job is counted twice."""

    def read() -> Iterator[Sample]:
        yield from runtime.read(operator)
        if operator.leading:
            yield from jobs.read(store.select(FEDERATED_JOB))

    return Exposition(DECLARED_SERIES, read)
