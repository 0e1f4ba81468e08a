"""Following the hub for as long as the process lives: one poll after the other, and reports as they come up.

The same in every kind of place; what is done about it differs (`Institution`). That the hub is gone ends nothing: what
was told last holds, and what there is to report waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Never, Protocol

from fedsilo.errors import FedsiloError, Problem
from fedsilo.hub.client import HubRequests
from fedsilo.hub.contact import PAUSES, Contact
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.reports import OfferReport, ReportQueue

log = logging.getLogger("fedsilo.hub")

POLL_SECONDS = 50.0
"""Time for which the hub is asked to wait for news; proxies cut what is silent for a minute."""

FLOOR_SECONDS = 1.0
"""Time after which the hub is asked again at the earliest, once `PROMPT_ANSWERS` in a row have come sooner."""

PROMPT_ANSWERS = 8
"""What has just changed often changes again; a hub or proxy that never waits is not asked as fast as it answers."""

UNKNOWN_CODES = frozenset({"unknown-sender", "signature-invalid", "silo-left"})
"""How the hub answers a key that is not registered, or not any more."""


class Institution(Protocol):
    """Where the institution's agents run."""

    async def on_revision(self, mirror: Mirror) -> None:
        """The hub has told something; its version is to be durable before anything is done about it."""

    async def on_enrolment(self) -> None:
        """The key was registered with a token for the first time: what the hub told before that counts no more, not
        even its version."""

    async def contact(self, contact: Contact) -> None:
        """The contact with the hub has changed, for example because the hub no longer answers."""


@dataclass(frozen=True)
class Membership:
    """What the institution identifies itself to the hub with.

    :param fingerprint: of its key.
    :param token: of its invitation; None once nobody has one.
    :param version: of fedsilo here, for the office.
    :param used: SHA-256 of the token that was used last; None while none was.
    """

    fingerprint: str
    token: str | None
    version: str
    used: str | None = None


class HubPoller:
    """Asks the hub for what to do, and tells it how that is going.

    :param mirror: with the version of what this place has followed before.
    :param now: the time, for what is said of the hub.
    :ivar reports: what there is to report; call `wake` after a change.
    :ivar contact: how it stands with the hub; None before the first answer or failure.
    """

    def __init__(
        self,
        hub: HubRequests,
        institution: Institution,
        membership: Membership,
        mirror: Mirror,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.reports = ReportQueue()
        self.contact: Contact | None = None
        self._hub = hub
        self._institution = institution
        self._membership = membership
        self._mirror = mirror
        self._now = now
        self._sleep = sleep
        self._failures = 0
        self._prompt_answers = 0
        self._token_used = membership.token is None
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """There may be something new to report."""
        self._changed.set()

    async def run(self) -> Never:
        """Poll the hub and send it reports until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll())
            tasks.create_task(self._report())
        raise AssertionError("endless tasks have ended")

    async def poll_once(self) -> float:
        """Ask once, and say how it stands; seconds until the next time."""
        asked = _seconds()
        try:
            told = await self._ask()
        except (Problem, Unreachable) as error:
            await self._note(error)
            pause = PAUSES.pause(self._failures)
            self._failures += 1
            return pause * random.uniform(0.5, 1.0)
        self._failures = 0
        await self._note(None)
        if told is not None:
            self._mirror = told
            await self._institution.on_revision(told)
        self._prompt_answers = self._prompt_answers + 1 if _seconds() - asked < FLOOR_SECONDS else 0
        return FLOOR_SECONDS if self._prompt_answers > PROMPT_ANSWERS else 0.0

    async def report_once(self, now: float) -> float | None:
        """Send what is due; seconds until something is, None while there is nothing to report.

        :param now: seconds of a clock that never goes back.
        """
        # Who is not accepted, or not there, is asked by the poll alone.
        if self.contact is None or not self.contact.reached:
            return None
        while (report := self.reports.next_report(now)) is not None:
            try:
                if isinstance(report, OfferReport):
                    await self._hub.offer(report.statement)
                else:
                    await self._hub.report(report.agent, report.uid, report.status)
            except (Problem, Unreachable) as error:
                log.warning("%s is not reported yet: %s", report, error)
                self.reports.postpone_report(report, now)
            else:
                self.reports.took(report)
        return self.reports.wait(now)

    async def _ask(self) -> Mirror | None:
        """What the hub tells, if that is news.

        :raises Problem: `malformed` also when it is older than what was told before.
        """
        try:
            # After a failure at once: that the hub is there again must not wait for news of it.
            told = await self._hub.agents(self._mirror.revision, 0.0 if self._failures else POLL_SECONDS)
        except Problem as problem:
            if problem.code not in UNKNOWN_CODES or self._token_used:
                raise
            await self._enrol(problem)
            return await self._ask()
        if told is None:
            return None
        heard = self._mirror.hear(told)
        if heard is self._mirror:
            raise Problem(
                "malformed",
                f"the hub tells what it told before version {self._mirror.version}, which has no effect; if its data "
                "were set back, ask the consortium's office for another invitation",
            )
        return heard

    async def _enrol(self, unknown: Problem) -> None:
        """Register the key, once.

        :param unknown: how the hub has answered the key without that.
        """
        token = self._membership.token
        assert token is not None
        try:
            fingerprint = await self._hub.enrol(token, self._membership.version)
        except Problem as problem:
            if problem.code != "invitation-invalid":
                raise
            # A silo that was revoked is told so by the first answer only.
            raise Problem(problem.code, f"{unknown.detail}. {problem.detail}") from problem
        self._token_used = True
        log.info("the hub has registered the key with the fingerprint %s", fingerprint)
        if token_digest(token) == self._membership.used:
            # Whoever ends TLS between can say that the key is unknown, and takes nobody back to an older list by that.
            return
        self._mirror = Mirror(self._mirror.silo)
        await self._institution.on_enrolment()

    async def _note(self, error: FedsiloError | None) -> None:
        before, self.contact = (
            self.contact,
            Contact.of(error, self.contact, self._membership.fingerprint, self._now()),
        )
        if self.contact.reached and (before is None or not before.reached):
            # What has come up before the first answer is as overdue as what has waited for the hub to come back.
            self.reports.flush_soon()
            self.wake()
        if not self.contact.same_as(before):
            log.log(logging.INFO if self.contact.reached else logging.WARNING, "%s", self.contact.message)
            await self._institution.contact(self.contact)

    async def _poll(self) -> Never:
        while True:
            if pause := await self.poll_once():
                await self._sleep(pause)

    async def _report(self) -> Never:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            wait = await self.report_once(loop.time())
            try:
                async with asyncio.timeout(PAUSES.longest if wait is None else wait):
                    await self._changed.wait()
            except TimeoutError:
                continue


def token_digest(token: str) -> str:
    """What is kept of a token that was used."""
    return hashlib.sha256(token.encode()).hexdigest()


def _seconds() -> float:
    """Seconds of a clock that never goes back."""
    return asyncio.get_running_loop().time()
