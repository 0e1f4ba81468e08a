"""List and watch: a shelf of the store that follows the API server."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing
from typing import Never

from fedsilo_operator.cluster.interface import Change, Cluster, ClusterError, Gone
from fedsilo_operator.objects import Kind, Ref, ref_of
from fedsilo_operator.runtime.store import Changed, Shelf

log = logging.getLogger("fedsilo")

FIRST, MOST = 0.5, 30.0
"""Seconds before the second try to list and watch, doubled with each one more, and the most."""


class Reflector:
    """Keeps one shelf like the API server has it, and tells who asked of every difference."""

    def __init__(self, cluster: Cluster, kind: Kind, labels: str, shelf: Shelf) -> None:
        self._cluster = cluster
        self._kind = kind
        self._labels = labels
        self._shelf = shelf
        self._version: str | None = None
        self.synced = asyncio.Event()
        """Set when the first list is in."""
        self.restarts = 0
        """How often it had to list anew or to try again; a watch that ends in its time is none."""

    def on_change(self, listener: Changed) -> None:
        """Tell this one too."""
        self._shelf.listeners.append(listener)

    async def run(self) -> Never:
        """Follow until cancelled, whatever the API server does."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            heard = False
            try:
                if self._version is None:
                    await self._list()
                async with aclosing(
                    self._cluster.watch(self._kind, self._version or "", labels=self._labels)
                ) as changes:
                    async for change in changes:
                        heard = True
                        self._note(change)
            except Gone as error:
                log.info("%s: listing again: %s", self._kind.plural, error)
                self._version = None
                self.restarts += 1
            except ClusterError as error:
                log.warning("%s: trying again: %s", self._kind.plural, error)
                self.restarts += 1
            # A watch ends every few minutes, which is no failure; one that brings nothing and ends at once is.
            failures = 0 if heard or loop.time() - began > MOST else failures + 1
            await asyncio.sleep(min(MOST, FIRST * 2.0 ** min(failures, 30)) * random.uniform(0.5, 1))

    async def _list(self) -> None:
        listing = await self._cluster.list(self._kind, labels=self._labels)
        there = {ref_of(obj) for obj in listing.items}
        for ref in self._shelf.objects.keys() - there:
            self._remove(ref)
        for obj in listing.items:
            self._shelf.note(obj)
        self._version = listing.resource_version
        self.synced.set()

    def _note(self, change: Change) -> None:
        if change.type == "DELETED":
            self._remove(ref_of(change.object))
        elif change.type != "BOOKMARK":
            self._shelf.note(change.object)
        self._version = change.object["metadata"]["resourceVersion"]

    def _remove(self, ref: Ref) -> None:
        before = self._shelf.remove(ref)
        if before is not None:
            self._shelf.tell(before, None)
