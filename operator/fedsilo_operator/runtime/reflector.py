"""A list and a watch keep an indexer of the store in step with the API server."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing
from typing import Never

from fedsilo.backoff import Backoff
from fedsilo_operator.cluster.interface import Change, Cluster, ClusterError, VersionExpired
from fedsilo_operator.objects import Kind, Ref, ref_of
from fedsilo_operator.runtime.store import ChangeListener, Indexer

log = logging.getLogger("fedsilo")

RETRIES = Backoff(0.5, 30.0)
"""Wait before another try to list and watch, seconds."""


class Reflector:
    """Keeps one indexer in step with the API server, and notifies its listeners of every difference."""

    def __init__(self, cluster: Cluster, kind: Kind, labels: str, indexer: Indexer) -> None:
        self._cluster = cluster
        self._kind = kind
        self._labels = labels
        self._indexer = indexer
        self._version: str | None = None
        self.synced = asyncio.Event()
        """Set when the first list is in."""
        self.restarts = 0
        """How often it had to list anew or try again; a watch that ends in due time does not count."""

    @property
    def version(self) -> int:
        """The API server's version of all objects of the kind that the indexer is up to; 0 before the first list.

        It grows with every change of any of them, and of two processes that follow the same kind, those with the same
        version know the same.
        """
        return self._indexer.version

    def on_change(self, listener: ChangeListener) -> None:
        """Add a listener to every difference."""
        self._indexer.listeners.append(listener)

    async def run(self) -> Never:
        """Follow until cancelled, whatever the API server does."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            received = False
            try:
                if self._version is None:
                    await self._list()
                async with aclosing(
                    self._cluster.watch(self._kind, self._version or "", labels=self._labels)
                ) as changes:
                    async for change in changes:
                        received = True
                        self._note(change)
            except VersionExpired as error:
                log.info("%s: listing again: %s", self._kind.plural, error)
                self._version = None
                self.restarts += 1
            except ClusterError as error:
                log.warning("%s: trying again: %s", self._kind.plural, error)
                self.restarts += 1
            # A watch ends every few minutes, which is no failure; one that brings nothing and ends at once is.
            failures = 0 if received or loop.time() - began > RETRIES.longest else failures + 1
            await asyncio.sleep(RETRIES.pause(failures) * random.uniform(0.5, 1))

    async def _list(self) -> None:
        listing = await self._cluster.list(self._kind, labels=self._labels)
        there, version = {ref_of(obj) for obj in listing.items}, int(listing.resource_version)
        for ref, obj in list(self._indexer.objects.items()):
            # What was created after the list was taken is known from the answer: the watch has yet to bring it.
            if ref not in there and int(obj["metadata"]["resourceVersion"]) <= version:
                self._remove(ref)
        for obj in listing.items:
            self._indexer.update(obj)
        self._version, self._indexer.version = listing.resource_version, version
        self.synced.set()

    def _note(self, change: Change) -> None:
        if change.type == "DELETED":
            self._remove(ref_of(change.object))
        elif change.type != "BOOKMARK":
            self._indexer.update(change.object)
        version: str = change.object["metadata"]["resourceVersion"]
        self._version, self._indexer.version = version, int(version)

    def _remove(self, ref: Ref) -> None:
        before = self._indexer.remove(ref)
        if before is not None:
            self._indexer.notify(before, None)
