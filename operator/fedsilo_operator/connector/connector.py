"""The connector as a controller: what the hub says becomes SiloAgents here, and what becomes of them is reported.

The silo controller beside it decides and acts, as in every cluster; it knows nothing of the hub. All that the connector
does follows from the caches and from what the hub has told last, so it may end at any moment. While the hub is away,
nothing here ends or waits but what it has yet to be told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Never

from typing_extensions import override

from fedsilo.api.annotations import LEAVE
from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis, as_status
from fedsilo.api.observed import Object, condition
from fedsilo.errors import Problem
from fedsilo.hub.client import AgentList, HubRequests
from fedsilo.hub.contact import PAUSES, UNREACHED_CODES, Contact, ContactReason
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.poller import HubPoller, Institution, Membership, token_digest
from fedsilo.process import version
from fedsilo.silo.leaving import sign_leaving
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Cache, Cluster, ClusterError, Event
from fedsilo_operator.connector import mirrored
from fedsilo_operator.connector.followed import followed_of, followed_status
from fedsilo_operator.connector.keys import SiloKeys
from fedsilo_operator.connector.reporting import ReportWriter
from fedsilo_operator.connector.sync import SyncResult, sync_agents
from fedsilo_operator.objects import (
    SILO_AGENT,
    SILO_KIND,
    Ref,
    is_deleted,
    ref_of,
    satisfies,
    silo_of,
)
from fedsilo_operator.reasons import Reason
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.operator import run_until_one_ends
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.silo import succession

log = logging.getLogger("fedsilo.connector")

SETTLED_SECONDS = 3600.0
"""Pause of a connector whose institution has left: only that the annotation goes wakes it before."""

KEY_POLL_SECONDS = 10.0
"""Time after which the signing key is looked for again: Secrets are not watched."""

ROTATION_SECONDS = 600.0
"""Time after which a key is announced again that the hub has refused."""

OpenHub = Callable[[SigningKey], AbstractAsyncContextManager[HubRequests]]
"""Opens the hub for a silo with that key."""


@dataclass(frozen=True)
class Subscription:
    """Whom a connector follows, as whom.

    :param silo: the Silo, which has the same name at the hub.
    :param hub: the hub's id.
    :param url: the hub's URL.
    :param token: of the invitation.
    """

    silo: Ref
    hub: str
    url: str
    token: str | None


class _MembershipChanged(Exception):
    """The silo has, or announces, another key than the one that the hub is asked with, or leaves, or leaves no more."""


async def _again_after(seconds: float) -> Never:
    await asyncio.sleep(seconds)
    raise _MembershipChanged


class Connector(Institution):
    """Reconciles a Silo with what its hub says; it is the `Institution` of a `HubPoller`.

    :ivar wake: called when there is something to reconcile that no watch reports.
    """

    name = "connector"

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        subscription: Subscription,
        open_hub: OpenHub,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._cache = cache
        self._subscription = subscription
        self._keys = SiloKeys(cluster, cache, subscription.silo)
        self._open_hub = open_hub
        self._now = now
        self._mirror: Mirror | None = None
        self._taken: str | None = None
        self._used: str | None = None
        self._contact: Contact | None = None
        self._following: HubPoller | None = None
        self._reporting = ReportWriter(cache, subscription.silo, now)
        self._changed = asyncio.Event()

    @property
    def key(self) -> Key:
        """Key of the Silo that is reconciled."""
        return Key(SILO_KIND, self._subscription.silo)

    def watches(self) -> Sequence[Watch]:
        """Watches that trigger a reconcile, of the Silo and its agents."""
        return Watch(SILO_KIND, "", self._silos), Watch(SILO_AGENT, "", self._agents)

    async def reconcile(self, key: Key) -> float | None:
        """Have here what the hub has, and note what there is to report."""
        self._changed.set()
        silo = self._cache.get(SILO_KIND, key.ref)
        if silo is None or is_deleted(silo):
            return None
        # What was told counts as followed before anything is done about it: after a crash nothing older is followed.
        mirror = self._mirror
        await self._write(silo, mirror)
        brought = SyncResult()
        if mirror is not None:
            brought = await sync_agents(self._cluster, self._cache, key.ref, mirror, self._subscription.url)
        if self._following is not None:
            self._reporting.report(silo, brought.unmade, self._following.reports)
            self._following.wake()
        if brought.failed is not None:
            raise brought.failed
        return None

    # What the hub is asked

    async def follow(self) -> Never:
        """Ask the hub, as long as this process leads."""
        while True:
            key = await self._signing_key()
            followed = followed_of(
                self._cache.get(SILO_KIND, self._subscription.silo), self._subscription.hub
            )
            membership = Membership(
                key.verify_key.fingerprint,
                self._subscription.token,
                version().removeprefix("fedsilo "),
                self._used or followed.get("tokenDigest"),
            )
            leaves, rotation = self._leaves(), self._keys.announcement()
            async with self._open_hub(key) as hub:
                mirror = Mirror(str(self._subscription.silo), followed.get("version", 0))
                self._following = None if leaves else HubPoller(hub, self, membership, mirror, self._now)
                self.wake()
                if self._following is None:
                    asks = self._leave(hub, key, mirror)
                elif rotation is None:
                    asks = self._following.run()
                else:
                    asks = self._rotate(hub, key, rotation, self._following)
                with suppress(_MembershipChanged):
                    await run_until_one_ends(asks, self._until_otherwise(key, leaves, rotation))

    async def _rotate(
        self, hub: HubRequests, key: SigningKey, rotation: Object, following: HubPoller
    ) -> Never:
        """Announce the key that takes over, until the hub has taken that; then wait until it is published here.

        The hub answers the key before no more then. Where it refuses the announcement, all goes on with that key.
        """
        failures, announced = 0, succession.announced_key(rotation)
        while await self._keys.own_key(announced) is not None:
            try:
                await hub.rotate(rotation)
            except (Problem, Unreachable) as error:
                if isinstance(error, Problem) and error.code not in UNREACHED_CODES:
                    await self._report_refusal(error)
                    break
                await self.contact(Contact.of(error, self._contact, key.verify_key.fingerprint, self._now()))
                await asyncio.sleep(PAUSES.pause(failures))
                failures += 1
            else:
                self._taken = announced
                self.wake()
                await asyncio.sleep(SETTLED_SECONDS)
        await run_until_one_ends(following.run(), _again_after(ROTATION_SECONDS))
        raise AssertionError("endless tasks have ended")

    async def _report_refusal(self, problem: Problem) -> None:
        """Tell people why the key is the one before."""
        silo = self._cache.get(SILO_KIND, self._subscription.silo)
        text = (
            f"The hub does not take the announcement of another key, and the silo goes on with the one before: "
            f"{problem.detail}. It is announced again every {ROTATION_SECONDS / 60:.0f} minutes."
        )
        log.warning("%s", text)
        if silo is not None:
            with suppress(ClusterError):
                await self._cluster.event(Event(silo, "Warning", str(Reason.HUB_REFUSED), text))

    async def _leave(self, hub: HubRequests, key: SigningKey, mirror: Mirror) -> Never:
        """Tell the hub that the silo leaves, until it has taken that; then nothing of the hub's stays here."""
        subscription, failures = self._subscription, 0
        while True:
            statement = sign_leaving(str(subscription.silo), subscription.hub, self._now(), key)
            try:
                await hub.leave(statement)
            except (Problem, Unreachable) as error:
                await self.contact(Contact.of(error, self._contact, key.verify_key.fingerprint, self._now()))
                await asyncio.sleep(PAUSES.pause(failures))
                failures += 1
            else:
                break
        text = (
            f"This institution has left. To join again, remove the annotation {LEAVE} and give another invitation by "
            "helm upgrade."
        )
        await self.contact(Contact(False, ContactReason.LEFT, text, self._now()))
        await self.on_revision(mirror.hear(AgentList(mirror.version, "", ())))
        while True:
            await asyncio.sleep(SETTLED_SECONDS)

    @override
    async def on_revision(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.wake()

    @override
    async def on_enrolment(self) -> None:
        assert self._subscription.token is not None
        self._used = token_digest(self._subscription.token)
        self._mirror = Mirror(str(self._subscription.silo))
        self.wake()

    @override
    async def contact(self, contact: Contact) -> None:
        self._contact = contact
        self.wake()

    async def _signing_key(self) -> SigningKey:
        """The published key, once the silo controller has made it."""
        while True:
            self._changed.clear()
            found = await self._keys.published_key()
            if found is not None:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(KEY_POLL_SECONDS):
                    await self._changed.wait()

    async def _until_otherwise(self, key: SigningKey, leaves: bool, rotation: Object | None) -> Never:
        while (
            self._keys.public_key in (None, key.verify_key.to_text())
            and self._leaves() == leaves
            and self._keys.announcement() == rotation
        ):
            self._changed.clear()
            await self._changed.wait()
        raise _MembershipChanged

    def _leaves(self) -> bool:
        """Whether a person of the institution has decided that it leaves."""
        silo = self._cache.get(SILO_KIND, self._subscription.silo)
        return silo is not None and LEAVE in (silo["metadata"].get("annotations") or {})

    # What is done here

    async def _write(self, silo: Object, mirror: Mirror | None) -> None:
        """The connector's part of the Silo's status, and an Event where it stands otherwise with the hub."""
        version = None if mirror is None else mirror.version
        status: dict[str, Any] = followed_status(
            silo, self._subscription.hub, version, self._taken, self._used
        )
        stated = None
        if self._contact is not None:
            reached = "True" if self._contact.reached else "False"
            diagnosis = Diagnosis(Reason(self._contact.reason), self._contact.message)
            stated = Condition.of(ConditionType.HUB_REACHED, reached, diagnosis)  # type: ignore[arg-type]
            status["conditions"] = as_status([stated], silo, self._now())
        if not status or satisfies(silo.get("status"), status):
            return
        before = condition(silo, ConditionType.HUB_REACHED)
        names = ("namespace", "name", "resourceVersion")
        metadata = {name: silo["metadata"][name] for name in names}
        body = {"apiVersion": SILO_KIND.api, "kind": SILO_KIND.name, "metadata": metadata, "status": status}
        await self._cluster.apply(body, manager=mirrored.MANAGER, status=True)
        if stated is not None and (before is None or before["reason"] != stated.reason):
            kind = "Normal" if stated.status == "True" else "Warning"
            with suppress(ClusterError):
                await self._cluster.event(Event(silo, kind, str(stated.reason), stated.message))  # type: ignore[arg-type]

    def _silos(self, silo: Object) -> Iterable[Key]:
        return (self.key,) if ref_of(silo) == self._subscription.silo else ()

    def _agents(self, agent: Object) -> Iterable[Key]:
        return (self.key,) if silo_of(agent) == self._subscription.silo else ()
