"""One controller's loop: changes become keys, keys are reconciled, and what fails comes back later."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Never, Protocol

from fedsilo.logs import concerning
from fedsilo.metrics import Distribution
from fedsilo_operator.cluster.interface import Cluster, ClusterError, Event, Refused
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    JOB_NAME,
    JOB_NAMESPACE,
    SILO,
    SILO_KIND,
    Kind,
    Object,
    labels_of,
)
from fedsilo_operator.reasons import Reason
from fedsilo_operator.refusals import Said
from fedsilo_operator.runtime.queue import Key, Queue
from fedsilo_operator.runtime.store import Changed, Store

log = logging.getLogger("fedsilo")

REFUSED_AGAIN = 60.0
"""Seconds, at least, after which to try again what the API server refused: a person must do something first."""


SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Bounds by which durations of reconciles are counted."""

PERSISTENT = 5
"""Failures in a row, half a minute of them, after which a person should know: news and restarts are quicker."""


RESULTS = ("success", "refused", "retry", "defect")
"""How a reconcile ends: well, refused by the API server, to be tried again, or with an error nobody foresaw."""


@dataclass(frozen=True)
class Watch:
    """What a controller follows.

    :param labels: label selector; empty for all objects of the kind.
    :param keys: which objects to look at when this one appears, changes or goes.
    """

    kind: Kind
    labels: str
    keys: Callable[[Object], Iterable[Key]]


class Reconciler(Protocol):
    """A controller's own part."""

    name: str
    """For logs and metrics."""

    def watches(self) -> Sequence[Watch]:
        """All that its decisions depend on."""

    async def reconcile(self, key: Key) -> float | None:
        """Make the cluster what the object says, whatever woke us.

        :return: seconds after which to look again although nothing changed; None when only changes matter.
        :raises ClusterError: when something could not be done; the key comes back later.
        """


class Controller:
    """A reconciler with its queue."""

    def __init__(self, reconciler: Reconciler, cluster: Cluster, store: Store) -> None:
        self.reconciler = reconciler
        self.queue = Queue()
        self.results: Counter[str] = Counter()
        self.durations = Distribution(SECONDS)
        self._cluster = cluster
        self._store = store
        self._complained: dict[Key, str] = {}

    def listener(self, watch: Watch) -> Changed:
        """What to do about a change that the watch brings."""

        def changed(before: Object | None, after: Object | None) -> None:
            # Both, since a change may cut the very tie to the object that has to know of it.
            for obj in (before, after):
                if obj is not None:
                    self._add(watch, obj)

        return changed

    def _add(self, watch: Watch, obj: Object) -> None:
        try:
            for key in watch.keys(obj):
                self.queue.add(key)
        except Exception:  # anybody can make an object that nobody thought of; it must not stop the others
            metadata = obj.get("metadata", {})
            log.exception("%s: whose is %s %s?", self.reconciler.name, watch.kind, metadata.get("name"))

    async def work(self) -> Never:
        """Reconcile one key after the other until cancelled; several may do so at once."""
        while True:
            key, waited = await self.queue.get()
            began = time.monotonic()
            try:
                with concerning(**self._facts(key)):
                    self.results[await self._handle(key)] += 1
            finally:
                self.queue.done(key)
            took = time.monotonic() - began
            self.durations.add(took)
            log.debug("%s: %s: reconciled in %.4f s, waited %.4f s", self.reconciler.name, key, took, waited)

    def _facts(self, key: Key) -> dict[str, str]:
        """What a reconcile is about, for the log."""
        if key.kind == FEDERATED_JOB:
            return {"namespace": key.ref.namespace, "job": key.ref.name}
        if key.kind == SILO_KIND:
            return {"silo": key.ref.name}
        labels = labels_of(self._store.get(key.kind, key.ref) or {"metadata": {}})
        names = {"namespace": JOB_NAMESPACE, "job": JOB_NAME, "silo": SILO}
        return {name: labels[label] for name, label in names.items() if label in labels}

    async def _handle(self, key: Key) -> str:
        """Reconcile one key; one of `RESULTS`."""
        name = self.reconciler.name
        try:
            again = await self.reconciler.reconcile(key)
        except Refused as error:
            log.error("%s: %s: the API server refused: %s", name, key, error)
            self.queue.retry(key, at_least=REFUSED_AGAIN)
            if not isinstance(error, Said):
                await self._complain(key, str(error))
            return "refused"
        except ClusterError as error:
            log.info("%s: %s: trying again: %s: %s", name, key, type(error).__name__, error)
            if self.queue.retry(key) >= PERSISTENT:
                await self._complain(key, str(error))
            return "retry"
        except Exception:
            log.exception("%s: %s: this is a defect of fedsilo; please report it", name, key)
            self.queue.retry(key)
            return "defect"
        self.queue.forget(key)
        self._complained.pop(key, None)
        if again is not None:
            self.queue.add_after(key, again)
        return "success"

    async def _complain(self, key: Key, message: str) -> None:
        """Record once, where a person looks, what the API server does not do."""
        about = self._store.get(key.kind, key.ref)
        if about is None or self._complained.get(key) == message:
            return
        try:
            await self._cluster.event(Event(about, "Warning", Reason.API_REFUSED, message))
            self._complained[key] = message
        except ClusterError as error:
            log.warning("%s: no event: %s", key, error)
