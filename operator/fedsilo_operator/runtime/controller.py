"""In one controller's loop, changes become keys, keys are reconciled, and what fails comes back later."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Never, Protocol

from fedsilo.api.observed import Object
from fedsilo.logs import concerning
from fedsilo.metrics import Distribution
from fedsilo_operator.cluster.interface import CallRefused, Cluster, ClusterError, Event
from fedsilo_operator.objects import FEDERATED_JOB, JOB_NAME, JOB_NAMESPACE, SILO, SILO_KIND, Kind, labels_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.rejections import AlreadyReported
from fedsilo_operator.runtime.queue import Key, Queue
from fedsilo_operator.runtime.store import ChangeListener, Store

log = logging.getLogger("fedsilo")

REFUSED_RETRY_SECONDS = 60.0
"""Shortest wait before what the API server refused is tried again: a person must do something first."""


DURATION_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds, in seconds, of the histogram of reconcile durations."""

FAILURES_BEFORE_EVENT = 5
"""Failures in a row, half a minute of them, after which people are notified: conflicts and restarts pass sooner."""


RESULTS = ("success", "refused", "retry", "defect")
"""How a reconcile ends: it succeeded, the API server refused, it is tried again, or it raised an unforeseen error."""


@dataclass(frozen=True)
class Watch:
    """What a controller follows.

    :param labels: label selector; empty for all objects of the kind.
    :param keys: which objects to reconcile when this one appears, changes or goes.
    :param patience: seconds for which a change, given the object before and after, may wait for others that concern
        the same key; None to wait for none.
    """

    kind: Kind
    labels: str
    keys: Callable[[Object], Iterable[Key]]
    patience: Callable[[Object | None, Object | None], float] | None = None


class Reconciler(Protocol):
    """A controller's own part."""

    name: str
    """For logs and metrics."""

    def watches(self) -> Sequence[Watch]:
        """Everything that its decisions depend on."""

    async def reconcile(self, key: Key) -> float | None:
        """Bring the cluster to the state that the object asks for, whatever the trigger.

        :return: seconds after which to reconcile again although nothing changed; None when only changes matter.
        :raises ClusterError: when something could not be done; the key comes back later.
        """


class Controller:
    """A reconciler with its queue."""

    def __init__(self, reconciler: Reconciler, cluster: Cluster, store: Store) -> None:
        self.reconciler = reconciler
        self.queue = Queue()
        self.results: Counter[str] = Counter()
        self.durations = Distribution(DURATION_BUCKETS)
        self._cluster = cluster
        self._store = store
        self._recorded: dict[Key, str] = {}

    def listener(self, watch: Watch) -> ChangeListener:
        """The listener that enqueues what a change concerns."""

        def enqueue_change(before: Object | None, after: Object | None) -> None:
            # Both, since a change may remove the very label that ties it to the object concerned.
            for obj in (before, after):
                if obj is not None:
                    self._enqueue(watch, obj, before, after)

        return enqueue_change

    def _enqueue(self, watch: Watch, obj: Object, before: Object | None, after: Object | None) -> None:
        try:
            seconds = 0.0 if watch.patience is None else watch.patience(before, after)
            for key in watch.keys(obj):
                if seconds:
                    self.queue.add_after(key, seconds)
                else:
                    self.queue.add(key)
        except Exception:  # anybody can create an object of an unforeseen shape; it must not stop the others
            metadata = obj.get("metadata", {})
            log.exception("%s: whose is %s %s?", self.reconciler.name, watch.kind, metadata.get("name"))

    async def work(self) -> Never:
        """Reconcile one key after the other until cancelled; several workers may do so at once."""
        while True:
            key, waited = await self.queue.get()
            began = time.monotonic()
            try:
                with concerning(**self._log_fields(key)):
                    self.results[await self._handle(key)] += 1
            finally:
                self.queue.mark_done(key)
            took = time.monotonic() - began
            self.durations.add(took)
            log.debug("%s: %s: reconciled in %.4f s, waited %.4f s", self.reconciler.name, key, took, waited)

    def _log_fields(self, key: Key) -> dict[str, str]:
        """Fields of every log line of a reconcile."""
        if key.kind == FEDERATED_JOB:
            return {"namespace": key.ref.namespace, "job": key.ref.name}
        if key.kind == SILO_KIND:
            return {"silo": key.ref.name}
        labels = labels_of(self._store.get(key.kind, key.ref) or {"metadata": {}})
        names = {"namespace": JOB_NAMESPACE, "job": JOB_NAME, "silo": SILO}
        return {name: labels[label] for name, label in names.items() if label in labels}

    async def _handle(self, key: Key) -> str:
        """Reconcile one object by its key; returns one of `RESULTS`."""
        name = self.reconciler.name
        try:
            again = await self.reconciler.reconcile(key)
        except CallRefused as error:
            log.error("%s: %s: the API server refused: %s", name, key, error)
            self.queue.retry(key, at_least=REFUSED_RETRY_SECONDS)
            if not isinstance(error, AlreadyReported):
                await self._record_failure(key, str(error))
            return "refused"
        except ClusterError as error:
            log.info("%s: %s: trying again: %s: %s", name, key, type(error).__name__, error)
            if self.queue.retry(key) >= FAILURES_BEFORE_EVENT:
                await self._record_failure(key, str(error))
            return "retry"
        except Exception:
            log.exception("%s: %s: this is a defect of fedsilo; please report it", name, key)
            self.queue.retry(key)
            return "defect"
        self.queue.forget(key)
        self._recorded.pop(key, None)
        if again is not None:
            self.queue.add_after(key, again)
        return "success"

    async def _record_failure(self, key: Key, message: str) -> None:
        """Record once, as an Event on the object, what the API server does not do."""
        about = self._store.get(key.kind, key.ref)
        if about is None or self._recorded.get(key) == message:
            return
        try:
            await self._cluster.event(Event(about, "Warning", Reason.API_REFUSED, message))
            self._recorded[key] = message
        except ClusterError as error:
            log.warning("%s: no event: %s", key, error)
