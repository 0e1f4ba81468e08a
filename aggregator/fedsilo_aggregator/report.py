"""Reporting into the job's status: the latest report, at most once a second, for as long as the job exists.

The service never waits for it, and an API server that is away stops no training. Only the end does: a process that has
a model ends when the job's status has it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fedsilo.api.scores import ScoresStatus
from fedsilo.api.status import CurvePoint, FederatedJobStatus, SiloStatusEntry

log = logging.getLogger("fedsilo.aggregator")

MIN_INTERVAL_SECONDS = 1.0
"""Shortest time between two writes."""

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 15.0
"""Time between tries, doubling from the first to the last, with jitter."""

LAST_REPORT_SECONDS = 180.0
"""Time that the last report may take: an API server that is upgraded is away for a minute or two."""

DIGITS = 4
"""Significant digits of a figure: people read it in a column. The aggregator's own directory has all of them."""

MAX_FIGURES = 100
"""Entries of each map in the status, as its schema allows."""

MAX_CURVES = 20
"""Scores, and training figures, of each point of the status's curve, as the status's schema allows."""

MAX_SILO_FIGURES = 4000
"""Scores of all silos together: an API server takes no object above 1.5 MB."""

NOT_APPLIED: dict[str, Any] = {
    "phase": True,
    "conditions": True,
    "fetched": True,
    "silos": {"__all__": {"namespace", "phase", "message"}},
}
"""Fields of a status that belong to the operator, or to the aggregator's own directory only."""


class JobGoneError(Exception):
    """The job that this aggregator works for does not exist any more."""


class JobStatus(Protocol):
    """The status of the one job that this aggregator works for."""

    async def apply(self, status: Mapping[str, Any]) -> None:
        """Make these the aggregator's fields.

        :raises JobGoneError: when there is no such job any more. Anything else that is raised may pass.
        """


def aggregator_fields(status: FederatedJobStatus, claim: str | None) -> dict[str, Any]:
    """The aggregator's fields of a FederatedJob's status (docs/operator.md), as an API server takes them.

    :param claim: PersistentVolumeClaim that holds the model.
    """
    bounded = status.model_copy(
        update={
            "metrics": _rounded_figures(status.metrics),
            "classes": tuple(
                found.model_copy(update={"figures": _rounded_figures(found.figures, MAX_CURVES)})
                for found in status.classes
            ),
            "scores": status.scores and _scores(status.scores, status),
            "best": status.best and status.best.model_copy(update={"value": _round(status.best.value)}),
            "training": _rounded_figures(status.training),
            "curve": tuple(_point(point) for point in status.curve),
            "refused": _figures(status.refused),
            "model": status.model and status.model.model_copy(update={"claim": claim}),
            "silos": tuple(_silo(silo) for silo in status.silos),
        }
    )
    content = bounded.document(exclude=NOT_APPLIED)
    content["curve"] = [_nonempty_fields(point) for point in content["curve"]]
    return _nonempty_fields(content)


def _scores(scores: ScoresStatus, status: FederatedJobStatus) -> ScoresStatus:
    """Figures of each silo, as many as there is room for, that of the main score among them."""
    each = min(MAX_CURVES, max(1, MAX_SILO_FIGURES // max(1, len(scores.by_silo))))
    names = scores.names({"metrics": status.metrics, "score": status.score})[:each]
    shown = (
        {name: value for name, value in silo.metrics.items() if name in names} for silo in scores.by_silo
    )
    rounded = (
        silo.model_copy(update={"metrics": _rounded_figures(metrics)})
        for silo, metrics in zip(scores.by_silo, shown, strict=True)
    )
    return scores.model_copy(update={"by_silo": tuple(rounded)})


def _silo(silo: SiloStatusEntry) -> SiloStatusEntry:
    accuracy = silo.personal_accuracy
    return silo.model_copy(update={"personal_accuracy": None if accuracy is None else _round(accuracy)})


def _point(point: CurvePoint) -> CurvePoint:
    figures = {"metrics": point.metrics, "training": point.training}
    return point.model_copy(
        update={name: _rounded_figures(values, MAX_CURVES) for name, values in figures.items()}
    )


def _nonempty_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    # What an apply leaves out is removed from the object, where this manager had set it.
    return {name: value for name, value in fields.items() if value not in ({}, [])}


def _rounded_figures(figures: Mapping[str, float], limit: int = MAX_FIGURES) -> dict[str, float]:
    return {name: _round(value) for name, value in _figures(figures, limit).items()}


def _round(figure: float) -> float:
    return float(f"{figure:.{DIGITS}g}")


def _figures(figures: Mapping[str, float], limit: int = MAX_FIGURES) -> dict[str, float]:
    """Finite figures by name, as many as the schema allows; JSON cannot express a loss that is not a number."""
    finite = [(name, value) for name, value in sorted(figures.items()) if math.isfinite(value)]
    return dict(finite[:limit])


class Report:
    """A `StatusSink` that keeps the job's status up to date while `running`.

    :param claim: PersistentVolumeClaim that holds the model.
    :param sleep: waits so many seconds.
    """

    def __init__(
        self, job: JobStatus, claim: str | None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._job = job
        self._claim = claim
        self._sleep = sleep
        self._wanted: dict[str, Any] | None = None
        self._written: dict[str, Any] | None = None
        self._last_error = "nothing was tried"
        self._gone = False
        self._news = asyncio.Event()
        self._settled = asyncio.Event()

    def publish(self, status: FederatedJobStatus) -> None:
        """Have this reported, in place of anything not reported yet."""
        self._wanted = aggregator_fields(status, self._claim)
        if self._wanted != self._written and not self._gone:
            self._settled.clear()
            self._news.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report in the background until the end of the block."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def wait_until_written(self, limit: float = LAST_REPORT_SECONDS) -> str | None:
        """Wait until the last report is written; after so many seconds, why it is not.

        A job that is gone needs no report.
        """
        try:
            async with asyncio.timeout(limit):
                await self._settled.wait()
        except TimeoutError:
            return self._last_error
        return None

    async def _run(self) -> None:
        pause = MIN_BACKOFF_SECONDS
        while not self._gone:
            await self._news.wait()
            self._news.clear()
            if self._wanted == self._written:
                self._settled.set()
            elif await self._write():
                pause = MIN_BACKOFF_SECONDS
                self._news.set()
                await self._sleep(MIN_INTERVAL_SECONDS)
            else:
                self._news.set()
                await self._sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, MAX_BACKOFF_SECONDS)
        self._settled.set()

    async def _write(self) -> bool:
        status = self._wanted
        assert status is not None
        # Until the answer, it is unknown which of the two is stored.
        self._written = None
        try:
            await self._job.apply(status)
        except JobGoneError as gone:
            log.warning("%s; its status is not written any more", gone)
            self._gone = True
            return True
        except Exception as error:
            # Whatever the client or the API server come up with: training goes on.
            problem = f"{type(error).__name__}: {error}"
            if problem != self._last_error:
                log.warning("the job's status could not be written: %s; trying again", problem)
            self._last_error = problem
            return False
        self._written, self._last_error = status, ""
        if self._wanted == status:
            self._settled.set()
        return True
