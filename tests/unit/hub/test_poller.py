"""A silo that follows a hub in memory: enrolment, polls, reports, and what is said while the hub is not reached."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.hub.client import AgentList, HubAgent
from fedsilo.hub.contact import PAUSES, Contact, ContactReason
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.poller import (
    FLOOR_SECONDS,
    POLL_SECONDS,
    PROMPT_ANSWERS,
    HubPoller,
    Membership,
    token_digest,
)
from fedsilo.wire import SigningKey
from tests.hub_fakes.hub import FakeHub, FakeRequests
from tests.operator_fakes.virtual import run

SILO, TOKEN = "silo-north/north", "a token"
AGENT = HubAgent("digits-north-1", "1", {"silo": {"namespace": "silo-north", "name": "north"}})


class FakeInstitution:
    """An institution that notes what it is told, and a clock that a test sets."""

    def __init__(self, token: str | None = TOKEN, version: int = 0) -> None:
        self.hub = FakeHub(SILO, token=TOKEN)
        self.key = SigningKey.generate()
        self.mirror = Mirror(SILO, version)
        self.contacts: list[Contact] = []
        self.enrolments = 0
        self.used: str | None = None
        self.clock = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.slept: list[float] = []
        self.start(token)

    def start(self, token: str | None = TOKEN) -> None:
        """Begin to follow the hub, as after a restart of the process."""
        membership = Membership(self.key.verify_key.fingerprint, token, "0.1.0", self.used)
        requests = self.hub.requests_of(self.key)
        mirror = Mirror(SILO, self.mirror.version)
        self.following = HubPoller(requests, self, membership, mirror, lambda: self.clock, self._sleep)

    def accept(self) -> None:
        self.hub.accepted = self.key.verify_key

    async def on_revision(self, mirror: Mirror) -> None:
        self.mirror = mirror

    async def on_enrolment(self) -> None:
        self.enrolments += 1
        self.used = token_digest(TOKEN)
        self.mirror = Mirror(SILO)

    async def contact(self, contact: Contact) -> None:
        self.contacts.append(contact)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def joined_institution() -> FakeInstitution:
    here = FakeInstitution()
    here.accept()
    assert await here.following.poll_once() == 0
    return here


async def test_a_key_is_registered_once_whatever_else_fails() -> None:
    here = FakeInstitution()
    assert await here.following.poll_once() > 0
    assert here.hub.requests == ["agents", "enrol", "agents"]
    assert [contact.reason for contact in here.contacts] == [ContactReason.ENROLMENT_PENDING]
    assert here.key.verify_key.fingerprint in here.contacts[0].message
    here.start()
    await here.following.poll_once()
    assert here.hub.requests.count("enrol") == 1, "a process that starts anew asks first whether it is known"
    here.accept()
    assert await here.following.poll_once() == 0
    assert here.contacts[-1].reached
    assert here.enrolments == 1


@pytest.mark.parametrize("left", [False, True])
async def test_a_new_invitation_registers_a_silo_that_has_left_or_has_another_key(left: bool) -> None:
    here = FakeInstitution()
    before = here.key if left else SigningKey.generate()
    here.hub.registered, here.hub.left = (before.verify_key, "an earlier token"), left
    here.accept()
    assert await here.following.poll_once() == 0
    assert here.hub.requests == ["agents", "enrol", "agents"]
    assert here.contacts[-1].reached


async def test_a_crash_between_the_use_of_a_token_and_its_answer_is_harmless() -> None:
    here = FakeInstitution()
    here.hub.registered = (here.key.verify_key, TOKEN)
    here.hub.token = None  # the invitation is closed meanwhile
    here.accept()
    assert await here.following.poll_once() == 0
    assert "enrol" not in here.hub.requests


async def test_an_invitation_that_does_not_hold_is_explained_and_tried_again() -> None:
    here = FakeInstitution(token="another")
    for _ in range(3):
        assert 0 < await here.following.poll_once() <= PAUSES.longest
    assert [contact.reason for contact in here.contacts] == [ContactReason.INVITATION_REFUSED]
    here.hub.token = "another"
    here.accept()
    assert await here.following.poll_once() == 0


async def test_a_revoked_silo_says_so_also_after_a_restart() -> None:
    here = await joined_institution()
    here.hub.revoked = True
    here.hub.news()
    assert await here.following.poll_once() > 0
    here.start()
    await here.following.poll_once()
    reasons = [contact.reason for contact in here.contacts[-2:]]
    assert reasons == [ContactReason.REFUSED, ContactReason.INVITATION_REFUSED]
    assert all("was revoked" in contact.message for contact in here.contacts[-2:])


async def test_while_the_hub_is_not_reached_it_says_since_when_and_why_and_asks_ever_less_often() -> None:
    here = await joined_institution()
    reached = here.clock
    here.hub.away = Unreachable("hub.example:443: no connection (timed out); let the firewall permit it")
    here.clock += timedelta(seconds=10)
    pauses = []
    for _ in range(12):
        pauses.append(await here.following.poll_once())
        here.clock += timedelta(minutes=1)
    assert len(here.contacts) == 2, "the same is not said again and again"
    lost = here.contacts[-1]
    assert (lost.reached, lost.reason) == (False, ContactReason.UNREACHABLE)
    assert lost.since == reached + timedelta(seconds=10)
    assert lost.heard == reached
    assert "let the firewall permit it" in lost.message
    assert max(pauses) <= PAUSES.longest
    assert min(pauses[7:]) >= PAUSES.longest / 2
    here.hub.away = Problem("unreachable", "the API server does not answer")
    await here.following.poll_once()
    assert here.contacts[-1].since == lost.since, "another cause is no new beginning"
    here.hub.away = None
    here.hub.news()
    back = here.clock
    await here.following.poll_once()
    assert (here.contacts[-1].reached, here.contacts[-1].since) == (True, back)


async def test_that_the_hub_is_back_is_known_at_once_also_without_news() -> None:
    here = await joined_institution()
    here.hub.away = Unreachable("gone")
    await here.following.poll_once()
    here.hub.away = None
    async with asyncio.timeout(5):
        assert await here.following.poll_once() == 0
    assert here.contacts[-1].reached


async def test_what_is_told_is_handed_on_and_what_is_older_is_not() -> None:
    here = await joined_institution()
    here.hub.put(AGENT)
    await here.following.poll_once()
    assert here.mirror.wanted_agents() == {AGENT.name: AGENT}
    version = here.mirror.version
    here.hub.remove(AGENT.name)
    await here.following.poll_once()
    assert here.mirror.wanted_agents() == {}
    here.hub.agents[AGENT.name] = AGENT
    here.hub.version = version
    here.start()
    assert await here.following.poll_once() > 0, "or it would ask again and again without a pause"
    assert here.mirror.wanted_agents() == {}
    assert "before version" in here.contacts[-1].message


async def test_a_new_enrolment_begins_the_order_anew() -> None:
    here = FakeInstitution(version=1000)
    here.accept()
    here.hub.put(AGENT)
    assert await here.following.poll_once() == 0
    assert here.mirror.wanted_agents() == {AGENT.name: AGENT}


async def test_a_token_that_was_used_before_takes_nobody_back_to_an_older_list() -> None:
    """A proxy that looks into TLS says that the key is unknown, then that it is registered, then what it has kept."""
    here = await joined_institution()
    old = here.mirror.version
    here.hub.put(AGENT)
    here.hub.news()
    await here.following.poll_once()
    newest = here.mirror.version
    here.start()
    registered, here.hub.registered, here.hub.version = here.hub.registered, None, old
    assert registered is not None
    assert await here.following.poll_once() > 0
    assert here.hub.requests[-3:] == ["agents", "enrol", "agents"]
    assert (here.mirror.version, here.enrolments) == (newest, 1)
    assert "before version" in here.contacts[-1].message


class Prompt(FakeRequests):
    """A hub, or whoever stands between, that never waits for news."""

    @override
    async def agents(self, after: str, wait: float) -> AgentList | None:
        hub = await self._begin("agents")
        assert len(hub.requests) < 1000, "it is asked as fast as it answers"
        return None if after else hub.agent_list()


@pytest.mark.parametrize("prompt", [True, False])
def test_a_hub_that_answers_at_once_is_not_asked_as_fast_as_it_answers(prompt: bool) -> None:
    async def count_requests() -> int:
        here = await joined_institution()
        membership = Membership(here.key.verify_key.fingerprint, None, "0.1.0")
        requests = Prompt(here.hub, here.key) if prompt else here.hub.requests_of(here.key)
        following = HubPoller(requests, here, membership, Mirror(SILO))
        before = len(here.hub.requests)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await following.run()
        return len(here.hub.requests) - before

    asked = run(count_requests())
    if prompt:
        assert 100 / FLOOR_SECONDS <= asked <= PROMPT_ANSWERS + 100 / FLOOR_SECONDS + 1
    else:
        assert asked <= 2 * (100 / POLL_SECONDS + 1), "each poll has begun and ended"


async def test_news_that_follow_upon_one_another_are_told_at_once() -> None:
    here = await joined_institution()
    for _ in range(PROMPT_ANSWERS - 1):
        here.hub.news()
        assert await here.following.poll_once() == 0
    here.hub.news()
    assert await here.following.poll_once() == FLOOR_SECONDS


async def test_reports_wait_for_the_hub_and_for_the_office() -> None:
    here = FakeInstitution()
    here.hub.put(AGENT)
    here.following.reports.state(AGENT.name, "1", {"phase": "Running"})
    await here.following.report_once(0)
    await here.following.poll_once()
    await here.following.report_once(1)
    assert "report" not in here.hub.requests
    here.accept()
    await here.following.poll_once()
    assert await here.following.report_once(2) is None
    assert here.hub.statuses == {AGENT.name: {"phase": "Running"}}


async def test_a_report_that_fails_comes_again_when_the_hub_is_back() -> None:
    here = await joined_institution()
    here.hub.put(AGENT)
    await here.following.poll_once()
    here.following.reports.state(AGENT.name, "1", {"phase": "Running"})
    here.hub.away = Unreachable("gone")
    wait = await here.following.report_once(100)
    assert wait is not None
    assert await here.following.report_once(100) == wait, "not before its time"
    await here.following.poll_once()
    here.hub.away = None
    here.hub.news()
    await here.following.poll_once()
    assert await here.following.report_once(100) is None
    assert here.hub.statuses == {AGENT.name: {"phase": "Running"}}


async def test_what_there_is_to_report_before_the_first_answer_is_reported_with_it() -> None:
    here = FakeInstitution()
    here.accept()
    here.hub.put(AGENT)
    here.following.reports.state(AGENT.name, "1", {"phase": "Running"})
    work = asyncio.ensure_future(here.following.run())
    async with asyncio.timeout(PAUSES.longest / 2):
        while not here.hub.statuses:
            await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_it_polls_and_reports_side_by_side_until_it_is_cancelled() -> None:
    here = await joined_institution()
    work = asyncio.ensure_future(here.following.run())
    here.hub.put(AGENT)
    while not here.mirror.wanted_agents():
        await asyncio.sleep(0)
    here.following.reports.state(AGENT.name, "1", {"phase": "Running"})
    here.following.wake()
    while not here.hub.statuses:
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
