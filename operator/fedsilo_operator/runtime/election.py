"""Leader election by a Lease, as client-go does it: of several operators one acts, the others stand by.

Times of other machines are never compared with this one's: a lease has expired when nobody renewed it for as long as it
is valid on the local clock.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Never
from uuid import uuid4

from fedsilo.api.observed import Object
from fedsilo.errors import FedsiloError
from fedsilo_operator.cluster.interface import Cluster, ClusterError, Conflict, NotFound
from fedsilo_operator.objects import LEASE, MANAGER, Ref

log = logging.getLogger("fedsilo")

LEASE_SECONDS = 12
"""Time for which a lease is valid: who stands by sees a renewal up to one attempt late, and leads within 15 seconds."""

RENEW_DEADLINE_SECONDS = 9.0
"""Time within which a leader renews it, or stops: well before another may take it."""

RETRY_SECONDS = 2.0
"""Time between two attempts, and up to a fifth more."""

SHORTEST_PAUSE_SECONDS = 0.1
"""Time after a lease has run out, before which nobody tries to take it."""

FIELD_MANAGER = f"{MANAGER}-election"
"""The field manager of all candidates; what keeps them apart is the lease's resource version."""


def new_holder(name: str) -> str:
    """An identity for a process of this name: when it starts again it is another, whose lease must first run out."""
    return f"{name}_{uuid4().hex[:8]}"


class LeaseLost(FedsiloError):
    """Another operator may act now; this one must stop."""

    reason = "LeaseLost"


class Election:
    """One candidate for the lease, whose holder leads.

    :param lease: name of the Lease, which is created if it does not exist.
    :param identity: of this process, and of no other ever.
    """

    def __init__(self, cluster: Cluster, lease: Ref, identity: str) -> None:
        self._cluster = cluster
        self._ref = lease
        self._identity = identity
        self._leading = False
        self._lease: Object = {}
        """As it was written last."""
        self.transitions = 0
        """How often the lease has changed hands, as of the last read."""
        self._renewed = 0.0
        """When the request began with which the lease was renewed last, on our clock."""

    @property
    def leading(self) -> bool:
        """Whether this process may act."""
        return self._leading

    async def acquire(self) -> None:
        """Wait until this process leads."""
        loop = asyncio.get_running_loop()
        known, since = "", 0.0
        while True:
            pause = _retry_pause()
            try:
                async with asyncio.timeout(RENEW_DEADLINE_SECONDS):
                    lease = await self._get()
                    version, spec = lease["metadata"]["resourceVersion"], lease.get("spec") or {}
                    if version != known:
                        known, since = version, loop.time()
                    left = since + spec.get("leaseDurationSeconds", LEASE_SECONDS) - loop.time()
                    # Ours already when the answer to an earlier attempt got lost.
                    free = spec.get("holderIdentity") in (None, "", self._identity)
                    if free or left < 0:
                        self._renewed = loop.time()
                        await self._take(lease)
                        return
                    pause = min(pause, left + SHORTEST_PAUSE_SECONDS)
            except (ClusterError, TimeoutError) as error:
                log.info("lease %s: trying again: %s", self._ref, error or "no answer")
            await asyncio.sleep(pause)

    async def hold(self) -> Never:
        """Renew the lease until it is lost.

        :raises LeaseLost: when another holds it, or it could not be renewed in time.
        """
        loop = asyncio.get_running_loop()
        while loop.time() < (until := self._renewed + RENEW_DEADLINE_SECONDS):
            await asyncio.sleep(min(_retry_pause(), until - loop.time()))
            began = loop.time()
            try:
                async with asyncio.timeout_at(until):
                    await self._renew()
                self._renewed = began
            except (ClusterError, TimeoutError) as error:
                log.warning("lease %s: not renewed: %s", self._ref, error or "no answer")
        self._leading = False
        raise LeaseLost(
            f"lease {self._ref} could not be renewed for {RENEW_DEADLINE_SECONDS:.0f} s; ending, since another may lead"
        )

    async def release(self) -> None:
        """Give the lease back, if this process has it, so that the next one need not wait until it runs out."""
        if not self._leading:
            return
        self._leading = False
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while not await self._released():
                    pass
        except (ClusterError, TimeoutError) as error:
            log.warning("lease %s: not released: %s", self._ref, error or "no answer")

    async def _released(self) -> bool:
        """Whether the lease is another's or nobody's; a renewal under way may come between reading and writing."""
        lease = await self._cluster.get(LEASE, self._ref)
        if lease["spec"].get("holderIdentity") != self._identity:
            return True
        with suppress(Conflict):
            await self._write(lease, holderIdentity="", leaseDurationSeconds=1)
            return True
        return False

    async def _get(self) -> Object:
        try:
            lease = await self._cluster.get(LEASE, self._ref)
            self.transitions = (lease.get("spec") or {}).get("leaseTransitions", 0)
            return lease
        except NotFound:
            # Empty, so that its creator owns no field of it: the first apply would conflict with that one.
            return await self._cluster.create(_lease(self._ref, {}, {}))

    async def _take(self, lease: Object) -> None:
        spec = lease.get("spec") or {}
        now, transitions = _now(), spec.get("leaseTransitions", 0) + 1
        await self._write(
            lease,
            holderIdentity=self._identity,
            leaseDurationSeconds=LEASE_SECONDS,
            acquireTime=now,
            renewTime=now,
            leaseTransitions=transitions,
        )
        self.transitions = transitions
        self._leading = True
        log.info("leading as %s", self._identity)

    async def _renew(self) -> None:
        """One request while nobody else has written to the lease: a busy API server then answers in time."""
        try:
            await self._write(self._lease, renewTime=_now())
        except Conflict:
            await self._write(await self._own_lease(), renewTime=_now())

    async def _own_lease(self) -> Object:
        """The lease as it is now.

        :raises LeaseLost: when it is not this process's.
        """
        try:
            lease = await self._cluster.get(LEASE, self._ref)
            holder = lease["spec"].get("holderIdentity")
        except NotFound:
            holder = None
        if holder != self._identity:
            self._leading = False
            raise LeaseLost(
                f"lease {self._ref} is held by {holder or 'nobody'}; ending, since another may lead"
            )
        return lease

    async def _write(self, lease: Object, **fields: Any) -> None:
        metadata = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        spec = (lease.get("spec") or {}) | fields
        self._lease = await self._cluster.apply(_lease(self._ref, metadata, spec), manager=FIELD_MANAGER)


def _lease(ref: Ref, metadata: dict[str, Any], spec: dict[str, Any]) -> Object:
    names = {"namespace": ref.namespace, "name": ref.name}
    return {"apiVersion": LEASE.api, "kind": LEASE.name, "metadata": names | metadata, "spec": spec}


def _retry_pause() -> float:
    return RETRY_SECONDS * random.uniform(1, 1.2)


def _now() -> str:
    """The time now as a metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
