"""Where a job's status goes besides: an MLflow server, in a thread that the job never waits for.

A server that is away delays nothing and fails nothing. What is to be sent is always in the history, so that nothing is
queued: the thread sends what the server does not have yet, and begins again after a pause where that fails.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from fedsilo.api.conditions import ENDS, JobPhase
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.status import OutputStatus
from fedsilo.api.text import first_line
from fedsilo.backoff import Backoff
from fedsilo.engine.mlflow_run import MlflowRun, require_client
from fedsilo.engine.record import Record
from fedsilo.engine.status import EngineStatus
from fedsilo.engine.store import JobIdentity

log = logging.getLogger("fedsilo.engine")

BACKOFF = Backoff(first=1.0, longest=60.0)

FINISH_SECONDS = 300.0
"""Time that the model gets to be sent once the job is over."""

MLFLOW = "mlflow"
"""Name of the output, as `spec.output` calls it."""

MAX_PROBLEM_CHARACTERS = 600
"""Characters of what a server or its client library say, in a status."""

_RETRY = "It is tried again until the job has ended."
_REMEDY = (
    "Make spec.output.mlflow.trackingUri reachable for the aggregator and its credentials valid; the model is in the "
    "job's volume, from which it can be added by hand."
)

INTERRUPTED_SECONDS = 2.0
"""Time that whatever was not sent gets when the job is interrupted."""

History = Callable[[], Sequence[Record]]


class TrackedRun(Protocol):
    """What a job is made known to; each call may fail, and may be repeated."""

    def send(self, history: Sequence[Record]) -> None:
        """Have these rounds there."""

    def finish(self, succeeded: bool) -> None:
        """Have the result there."""


class TrackingSink:
    """A `StatusSink` that makes rounds and result known to a run.

    :param pause: waits so many seconds, or less if the job is over meanwhile.
    """

    def __init__(
        self, run: TrackedRun, history: History, pause: Callable[[float], object] | None = None
    ) -> None:
        self._run = run
        self._history = history
        self._news = threading.Event()
        self._over = threading.Event()
        self._pause = pause or self._over.wait
        self._phase = JobPhase.RUNNING
        self._sent: tuple[int, JobPhase] | None = None
        self._problem: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    def start(self) -> None:
        """Begin to send rounds and result to the run."""
        self._thread.start()

    def publish(self, status: EngineStatus) -> None:
        """Have the rounds that are complete by now sent, and the result if there is one."""
        self._phase = JobPhase(status.phase) if status.phase else JobPhase.RUNNING
        if self._sent != (len(self._history()), self._phase):
            self._news.set()

    @property
    def output(self) -> OutputStatus:
        """What the job's status says of this run."""
        problem = self._problem
        if problem is None:
            return OutputStatus.model_construct(name=MLFLOW, delivered=True)
        message = f"{problem[:MAX_PROBLEM_CHARACTERS].rstrip('.')}. {_REMEDY if self._closed else _RETRY}"
        return OutputStatus.model_construct(name=MLFLOW, delivered=False, message=message)

    def close(self, limit: float = FINISH_SECONDS) -> None:
        """Wait until the rest is sent, but not for a server that is away; once."""
        if self._closed:
            return
        self._closed = True
        self._over.set()
        self._news.set()
        self._thread.join(limit)
        if self._thread.is_alive():
            self._problem = f"the model was not sent within {limit:g} s"
        if self._problem is not None:
            log.warning(
                "the MLflow run is not complete: %s; the rest is sent when the job is resumed", self._problem
            )

    def _work(self) -> None:
        failures = 0
        while not (self._over.is_set() and not self._news.is_set()):
            self._news.wait()
            self._news.clear()
            if self._send():
                failures = 0
            elif not self._over.is_set():
                self._news.set()
                self._pause(BACKOFF.pause(failures))
                failures += 1

    def _send(self) -> bool:
        """Whether the server has all that there is."""
        phase = self._phase  # before the history, which is whole once the phase says that the job is over
        history = self._history()
        wanted = len(history), phase
        if wanted == self._sent:
            return True
        try:
            self._run.send(history[: wanted[0]])
            if phase in ENDS:
                self._run.finish(phase == JobPhase.COMPLETE)
        except Exception as error:  # whatever the client library or the server come up with: training goes on
            problem = f"{type(error).__name__}: {first_line(error)}"
            if problem != self._problem:
                log.warning("the MLflow run could not be written: %s; trying again", problem)
            self._problem = problem
            return False
        self._sent, self._problem = wanted, None
        return True


def require_tracking(spec: FederatedJobSpec) -> None:
    """Check that what the job asks for can be had.

    :raises ManifestInvalid: when the client library is missing.
    """
    if spec.mlflow is not None:
        require_client()


@contextmanager
def tracking(
    spec: FederatedJobSpec, identity: JobIdentity, history: History, directory: Path
) -> Iterator[tuple[TrackingSink, ...]]:
    """The job's tracking, where its specification requests it, until the end of the block."""
    if spec.mlflow is None:
        yield ()
        return
    tracked = TrackingSink(MlflowRun(spec.mlflow, spec, identity, directory), history)
    tracked.start()
    try:
        yield (tracked,)
    except BaseException:
        tracked.close(INTERRUPTED_SECONDS)
        raise
    tracked.close()
