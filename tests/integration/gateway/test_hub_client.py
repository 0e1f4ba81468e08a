"""One contract for what an institution asks: over the hub in memory that other tests use, and over the real gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiohttp import web

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.silo import Silo
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import Problem
from fedsilo.hub.client import AgentList, HubAgent, HubClient, HubRequests, hub_client
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.https import HttpsClient
from fedsilo.silo.leaving import sign_leaving
from fedsilo.silo.offer import sign_offer
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey, make_authority
from fedsilo_operator.cluster.interface import ClusterUnavailable
from fedsilo_operator.objects import SILO_AGENT, Ref
from tests.hub_fakes.hub import FakeHub
from tests.integration.gateway.place import serve_application, server_tls
from tests.integration.gateway.running_hub import NORTH, TOKEN, RunningHub

AGENT = "digits-north-1"


class Subject(Protocol):
    """What the contract is about, as the consortium handles it."""

    hub_id: str

    def requests(self, key: SigningKey) -> HubRequests:
        """What a silo with that key asks with."""

    def invite(self) -> None: ...
    def accept(self, key: SigningKey) -> None: ...
    def revoke(self) -> None: ...
    def propose(self) -> tuple[str, Mapping[str, Any]]:
        """Make a SiloAgent at the hub; its uid and spec."""

    def withdraw(self) -> None: ...
    def set_away(self, away: bool) -> None: ...
    def status(self) -> Mapping[str, Any]: ...
    def offer(self) -> Mapping[str, Any] | None: ...


class InMemory:
    """The hub in memory that other tests use."""

    hub_id = "0123456789abcdef"

    def __init__(self) -> None:
        self.hub = FakeHub(str(NORTH))

    def requests(self, key: SigningKey) -> HubRequests:
        return self.hub.requests_of(key)

    def invite(self) -> None:
        self.hub.token = TOKEN

    def accept(self, key: SigningKey) -> None:
        self.hub.accepted = key.verify_key

    def revoke(self) -> None:
        self.hub.revoked = True
        self.hub.news()

    def propose(self) -> tuple[str, Mapping[str, Any]]:
        agent = HubAgent(AGENT, "a-uid", {"silo": {"namespace": NORTH.namespace, "name": NORTH.name}})
        self.hub.put(agent)
        return agent.uid, agent.spec

    def withdraw(self) -> None:
        self.hub.remove(AGENT)

    def set_away(self, away: bool) -> None:
        self.hub.away = Problem("unreachable", "the API server does not answer") if away else None

    def status(self) -> Mapping[str, Any]:
        return self.hub.statuses.get(AGENT, {})

    def offer(self) -> Mapping[str, Any] | None:
        return self.hub.offer


class RealGateway:
    """The gateway, asked over TLS by the client that institutions have."""

    def __init__(self, running_hub: RunningHub, clients: dict[str, HubRequests]) -> None:
        self.hub_id = running_hub.identity.id
        self._house = running_hub
        self._clients = clients

    def requests(self, key: SigningKey) -> HubRequests:
        return self._clients[key.verify_key.to_text()]

    def invite(self) -> None:
        self._house.invite()

    def accept(self, key: SigningKey) -> None:
        self._house.keys[NORTH] = key
        self._house.accept()

    def revoke(self) -> None:
        self._house.accept(revoked=True)

    def propose(self) -> tuple[str, Mapping[str, Any]]:
        made = self._house.propose()
        told = {name: value for name, value in made["spec"].items() if name != "route"}
        return uid_of(made), told

    def withdraw(self) -> None:
        self._house.cluster.remove(SILO_AGENT, Ref(NORTH.namespace, AGENT))

    def set_away(self, away: bool) -> None:
        self._house.broken = ClusterUnavailable("no connection") if away else None

    def status(self) -> Mapping[str, Any]:
        return self._house.status(SILO_AGENT, Ref(NORTH.namespace, AGENT))

    def offer(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self._house.status().get("offer")
        return found


KEY, OTHER_KEY = SigningKey.generate(), SigningKey.generate()


@pytest.fixture(params=["in memory", "gateway"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "in memory":
        yield InMemory()
        return
    async with RunningHub(tmp_path).running() as running_hub:
        address = HubAddress(
            url=f"https://127.0.0.1:{running_hub.gateway.port}",
            ca_certificate=running_hub.authority_pem,
            key=running_hub.identity.key.verify_key.to_text(),
        )
        async with (
            hub_client(address, str(NORTH), KEY, {}) as one,
            hub_client(address, str(NORTH), OTHER_KEY, {}) as other,
        ):
            yield RealGateway(
                running_hub, {KEY.verify_key.to_text(): one, OTHER_KEY.verify_key.to_text(): other}
            )


async def refusal_code(ask: Callable[[], Awaitable[Any]], *transient: str) -> str:
    """Code of a refusal, once the gateway's cache has followed the cluster."""
    while True:
        with pytest.raises(Problem) as caught:
            await ask()
        if caught.value.code not in transient:
            assert caught.value.detail
            return caught.value.code


async def settled_answer(ask: Callable[[], Awaitable[Any]], *transient: str) -> Any:
    """The answer, once the gateway's cache has followed the cluster."""
    while True:
        try:
            return await ask()
        except Problem as problem:
            assert problem.code in transient, problem


async def join_hub(subject: Subject) -> HubRequests:
    hub = subject.requests(KEY)
    subject.invite()
    assert await settled_answer(lambda: hub.enrol(TOKEN, "0.1.0"), "invitation-invalid") == (
        KEY.verify_key.fingerprint
    )
    subject.accept(KEY)
    await settled_answer(lambda: hub.agents("", 0), "not-accepted", "unknown-sender")
    return hub


async def listed_agents(hub: HubRequests, count: int) -> AgentList:
    """The list, once it has so many agents."""
    while True:
        told = await hub.agents("", 0)
        assert told is not None
        if len(told.agents) == count:
            return told


async def test_a_key_is_registered_once_and_asks_once_it_is_accepted(subject: Subject) -> None:
    hub, other = subject.requests(KEY), subject.requests(OTHER_KEY)
    assert await refusal_code(lambda: hub.agents("", 0)) == "unknown-sender"
    assert await refusal_code(lambda: hub.enrol(TOKEN, "0.1.0")) == "invitation-invalid"
    subject.invite()
    await settled_answer(lambda: hub.enrol(TOKEN, "0.1.0"), "invitation-invalid")
    assert await refusal_code(lambda: hub.enrol("another", "0.1.0")) == "invitation-invalid"
    assert await hub.enrol(TOKEN, "0.1.0") == KEY.verify_key.fingerprint, "the answer may have been lost"
    assert await refusal_code(lambda: other.enrol(TOKEN, "0.1.0")) == "invitation-used"
    assert await refusal_code(lambda: hub.agents("", 0), "unknown-sender") == "not-accepted"
    assert await refusal_code(lambda: other.agents("", 0)) == "signature-invalid"
    subject.accept(KEY)
    told = await settled_answer(lambda: hub.agents("", 0), "not-accepted")
    assert told.agents == ()


async def test_a_poll_waits_for_what_is_new_and_what_is_told_has_an_order(subject: Subject) -> None:
    hub = await join_hub(subject)
    before = await listed_agents(hub, 0)
    assert await hub.agents(before.revision, 0) is None
    poll = asyncio.ensure_future(hub.agents(before.revision, 60))
    await asyncio.sleep(0)
    uid, spec = subject.propose()
    after = await poll
    assert after is not None
    assert after.agents == (HubAgent(AGENT, uid, spec),)
    assert after.version > before.version
    subject.withdraw()
    assert (await listed_agents(hub, 0)).version > after.version


async def test_a_report_is_of_an_agent_that_is_there(subject: Subject) -> None:
    hub = await join_hub(subject)
    uid, _ = subject.propose()
    await listed_agents(hub, 1)
    await hub.report(AGENT, uid, {"phase": "Running", "message": "Guard and trainer run."})
    assert subject.status()["phase"] == "Running"
    assert await refusal_code(lambda: hub.report(AGENT, "another", {"phase": "Failed"})) == "unknown-agent"
    assert await refusal_code(lambda: hub.report("another", uid, {"phase": "Failed"})) == "unknown-agent"
    assert subject.status()["phase"] == "Running"


async def test_an_offer_is_published_as_the_silo_has_signed_it(subject: Subject) -> None:
    hub = await join_hub(subject)
    statement = offer(KEY)
    await hub.offer(statement)
    assert subject.offer() == statement
    assert await refusal_code(lambda: hub.offer(offer(OTHER_KEY))) == "signature-invalid"
    assert subject.offer() == statement


def offer(key: SigningKey) -> Object:
    metadata = {"name": NORTH.name, "namespace": NORTH.namespace}
    spec = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]}
    return sign_offer(Silo.model_validate({"metadata": metadata, "spec": spec}), datetime.now(UTC), key)


async def test_a_revoked_silo_is_told_no_more(subject: Subject) -> None:
    hub = await join_hub(subject)
    told = await listed_agents(hub, 0)
    poll = asyncio.ensure_future(hub.agents(told.revision, 60))
    await asyncio.sleep(0)
    subject.revoke()
    with pytest.raises(Problem, match="unknown-sender"):
        await poll
    assert await refusal_code(lambda: hub.agents("", 0)) == "unknown-sender"
    assert await refusal_code(lambda: hub.enrol(TOKEN, "0.1.0")) == "invitation-invalid"


async def test_a_key_is_replaced_by_one_that_both_keys_announce(subject: Subject) -> None:
    hub, other = await join_hub(subject), subject.requests(OTHER_KEY)
    rotation = sign_rotation(str(NORTH), KEY, OTHER_KEY, datetime.now(UTC))
    await hub.rotate(rotation)
    await hub.rotate(rotation)
    await settled_answer(lambda: other.agents("", 0), "signature-invalid")
    assert await refusal_code(lambda: hub.agents("", 0)) == "signature-invalid"
    third = sign_rotation(str(NORTH), KEY, SigningKey.generate(), datetime.now(UTC))
    assert await refusal_code(lambda: hub.rotate(third)) == "key-superseded"


async def test_a_silo_that_leaves_is_told_no_more_and_may_say_it_again(subject: Subject) -> None:
    hub = await join_hub(subject)
    told = await listed_agents(hub, 0)
    poll = asyncio.ensure_future(hub.agents(told.revision, 60))
    await asyncio.sleep(0)
    statement = sign_leaving(str(NORTH), subject.hub_id, datetime.now(UTC), KEY)
    await hub.leave(statement)
    with pytest.raises(Problem, match="silo-left"):
        await poll
    await hub.leave(statement)
    assert await refusal_code(lambda: hub.agents("", 0)) == "silo-left"
    assert await refusal_code(lambda: hub.enrol(TOKEN, "0.1.0")) == "silo-left"


async def test_a_hub_that_cannot_write_says_so_and_takes_it_later(subject: Subject) -> None:
    hub = await join_hub(subject)
    uid, _ = subject.propose()
    await listed_agents(hub, 1)
    subject.set_away(True)
    assert await refusal_code(lambda: hub.report(AGENT, uid, {"phase": "Running"})) == "unreachable"
    subject.set_away(False)
    await hub.report(AGENT, uid, {"phase": "Running"})
    assert subject.status()["phase"] == "Running"


# What only HTTPS has: clocks that differ, and answers of others than the hub.


@pytest.mark.parametrize(("minutes", "side"), [(20, "ahead of"), (-20, "behind")])
async def test_a_clock_that_is_off_is_named_with_what_to_do(tmp_path: Path, minutes: int, side: str) -> None:
    async with RunningHub(tmp_path).running() as running_hub:
        running_hub.invite()
        url, key = f"https://127.0.0.1:{running_hub.gateway.port}", running_hub.identity.key.verify_key
        async with HttpsClient(url, running_hub.authority_pem, {}) as https:
            off = HubClient(https, key, str(NORTH), KEY, lambda: time.time() + 60 * minutes)
            with pytest.raises(
                Problem, match=f"^proof-expired: this machine's clock is 20 min {side} .* by NTP"
            ):
                await off.enrol(TOKEN, "0.1.0")
            exact = HubClient(https, key, str(NORTH), KEY)
            await settled_answer(lambda: exact.enrol(TOKEN, "0.1.0"), "invitation-invalid")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(tmp_path: Path, handler: Handler) -> AsyncIterator[HubRequests]:
    """A client whose hub is a server that does what a test says."""
    app, authority = web.Application(), make_authority()
    app.router.add_route("*", "/{path:.*}", handler)
    async with serve_application(
        web.AppRunner(app, access_log=None), server_tls(tmp_path, authority)
    ) as port:
        address = HubAddress(
            url=f"https://127.0.0.1:{port}",
            ca_certificate=authority.cert_pem.decode(),
            key=SigningKey.generate().verify_key.to_text(),
        )
        async with hub_client(address, str(NORTH), KEY, {}) as client:
            yield client


@pytest.mark.parametrize("status", [200, 204, 302, 403, 502])
async def test_a_page_for_people_is_no_answer_of_the_hub(tmp_path: Path, status: int) -> None:
    async def page(request: web.Request) -> web.Response:
        await request.read()
        text = None if status == 204 else "<html>log in</html>"
        headers = {"Location": "https://login.example"} if status == 302 else {}
        return web.Response(text=text, content_type="text/html", status=status, headers=headers)

    async with answering(tmp_path, page) as hub:
        if status != 204:
            with pytest.raises(Unreachable, match=f"status {status}"):
                await hub.agents("", 0)
            with pytest.raises(Unreachable, match=f"status {status}"):
                await hub.offer({})
        with pytest.raises(Unreachable, match=f"status {status}"):
            await hub.enrol(TOKEN, "0.1.0")


async def test_what_the_hub_has_not_signed_is_refused(tmp_path: Path) -> None:
    async def forged_answer(request: web.Request) -> web.Response:
        return web.Response(body=b"\xc4\x02{}" + b"\xc4\x40" + bytes(64), headers={"Revision": "1"})

    async with answering(tmp_path, forged_answer) as hub:
        with pytest.raises(Problem, match="signature-invalid"):
            await hub.agents("", 0)


async def test_an_answer_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(status=403)
        await response.prepare(request)
        while sent < 1 << 30:
            await response.write(bytes(1 << 20))
            sent += 1 << 20
        return response

    async with answering(tmp_path, flood) as hub:
        with pytest.raises(Unreachable, match="an answer of more than"):
            await hub.agents("", 0)
    assert sent < 1 << 28


async def test_a_hub_that_registers_another_key_is_found_out(tmp_path: Path) -> None:
    async def other_key_answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"fingerprint": OTHER_KEY.verify_key.fingerprint}, status=201)

    async with answering(tmp_path, other_key_answer) as hub:
        with pytest.raises(Problem, match="another key"):
            await hub.enrol(TOKEN, "0.1.0")


async def test_a_hub_that_is_not_there_is_named_with_what_to_do() -> None:
    key = SigningKey.generate().verify_key.to_text()
    async with hub_client(HubAddress(url="https://127.0.0.1:1", key=key), str(NORTH), KEY, {}) as hub:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 refuses connections; ask the hub"):
            await hub.agents("", 0)
