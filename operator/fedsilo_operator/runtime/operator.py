"""In the whole runtime, caches follow the cluster, and the leader reconciles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Never

from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.objects import Kind
from fedsilo_operator.runtime.controller import Controller, Reconciler
from fedsilo_operator.runtime.election import Election
from fedsilo_operator.runtime.reflector import Reflector
from fedsilo_operator.runtime.store import Store

WORKERS = 8
"""Keys that one controller reconciles at once: most of them wait for an answer of the API server."""


class Operator:
    """Several controllers over one store.

    :param election: None to act without asking.
    :param alongside: what else the leader does, without end.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        reconcilers: Sequence[Reconciler],
        election: Election | None = None,
        workers: int = WORKERS,
        alongside: Sequence[Callable[[], Coroutine[Any, Any, Never]]] = (),
    ) -> None:
        self.election = election
        self._alongside = alongside
        self._workers = workers
        self.controllers = [Controller(reconciler, cluster, store) for reconciler in reconcilers]
        self.reflectors: dict[tuple[Kind, str], Reflector] = {}
        for controller in self.controllers:
            for watch in controller.reconciler.watches():
                place = watch.kind, watch.labels
                if place not in self.reflectors:
                    self.reflectors[place] = Reflector(cluster, *place, store.indexer(*place))
                self.reflectors[place].on_change(controller.listener(watch))

    @property
    def unsynced_kinds(self) -> list[str]:
        """Kinds whose first list has not arrived yet; once all have, the operator is ready to lead."""
        return sorted(
            {kind.plural for (kind, _), found in self.reflectors.items() if not found.synced.is_set()}
        )

    def unready_reason(self) -> str:
        """Why it could not lead now; "" when it could. A standby is ready too, since it takes over at once."""
        missing = self.unsynced_kinds
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    @property
    def leading(self) -> bool:
        """Whether this operator acts."""
        return self.election is None or self.election.leading

    async def run(self) -> Never:
        """Run all controllers until cancelled; the lease is then given back.

        :raises LeaseLost: when another may lead.
        """
        try:
            await run_until_one_ends(
                self._lead(), *(reflector.run() for reflector in self.reflectors.values())
            )
        finally:
            if self.election is not None:
                await self.election.release()

    async def _lead(self) -> Never:
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        holding = []
        if self.election is not None:
            await self.election.acquire()
            holding = [self.election.hold()]
        await run_until_one_ends(
            *holding,
            *(controller.work() for controller in self.controllers for _ in range(self._workers)),
            *(begin() for begin in self._alongside),
        )


async def run_until_one_ends(*endless: Coroutine[Any, Any, Never]) -> Never:
    """Run all until one fails, and raise its error: with one missing, the rest would only seem to work."""
    tasks = [asyncio.ensure_future(each) for each in endless]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await next(iter(ended))
