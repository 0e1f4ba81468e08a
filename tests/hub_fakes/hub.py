"""A hub in memory: it answers a silo as the gateway does, which `tests/integration/gateway` compares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.hub.client import AgentList, HubAgent, HubRequests
from fedsilo.hub.failures import Unreachable
from fedsilo.silo.leaving import read_leaving
from fedsilo.silo.offer import read_offer
from fedsilo.silo.rotation import read_rotation
from fedsilo.wire import SigningKey, VerifyKey


@dataclass
class FakeHub:
    """One hub with one silo.

    :ivar token: what registers a key; None while nobody is invited.
    :ivar registered: the key that was registered, and with which token.
    :ivar accepted: the key that the office has accepted.
    :ivar agents: the SiloAgents, by name.
    :ivar rotations: of the key that was registered; the key that each led to.
    :ivar announced: the rotations themselves.
    :ivar left: whether the silo has left.
    :ivar statuses: what was reported, by name.
    :ivar away: why nobody reaches the hub; None while it answers.
    :ivar rotation_refused: why no rotation is taken; None while they are.
    :ivar after_rotation: called when one was taken, before the answer.
    :ivar requests: verbs in the order in which they came.
    """

    silo: str
    token: str | None = None
    registered: tuple[VerifyKey, str] | None = None
    accepted: VerifyKey | None = None
    revoked: bool = False
    left: bool = False
    rotations: list[VerifyKey] = field(default_factory=list)
    announced: list[Mapping[str, Any]] = field(default_factory=list)
    agents: dict[str, HubAgent] = field(default_factory=dict)
    statuses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    offer: Mapping[str, Any] | None = None
    away: Exception | None = None
    rotation_refused: Problem | None = None
    after_rotation: Callable[[], None] = lambda: None
    requests: list[str] = field(default_factory=list)
    version: int = 1
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def requests_of(self, key: SigningKey) -> FakeRequests:
        """What a silo with that key asks with."""
        return FakeRequests(self, key)

    def put(self, agent: HubAgent) -> None:
        """Make or change a SiloAgent."""
        if (before := self.agents.get(agent.name)) is not None and before.uid != agent.uid:
            self.statuses.pop(agent.name, None)
        self.agents[agent.name] = deepcopy(agent)
        self.news()

    def remove(self, name: str) -> None:
        """Delete a SiloAgent from the hub."""
        del self.agents[name]
        self.statuses.pop(name, None)
        self.news()

    def news(self) -> None:
        """Answer polls under way, because something has changed."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def agent_list(self) -> AgentList:
        """What is told now."""
        return AgentList(self.version, str(self.version), tuple(deepcopy(list(self.agents.values()))))

    @property
    def change_event(self) -> asyncio.Event:
        """Set with the next change."""
        return self._changed

    def current_key(self) -> VerifyKey:
        """The key that the silo has now."""
        assert self.registered is not None
        return self.rotations[-1] if self.rotations else self.registered[0]

    def require(self, key: VerifyKey) -> None:
        """Return if a silo with this key may ask.

        :raises Problem: if not.
        """
        if self.registered is None:
            raise Problem("unknown-sender", f"silo {self.silo} has not enrolled at this hub")
        if self.current_key() != key:
            raise Problem("signature-invalid", "the signature is not by the key that the silo has now")
        if self.revoked:
            raise Problem("unknown-sender", f"silo {self.silo} was revoked by the consortium; ask its office")
        if self.left:
            raise Problem("silo-left", f"silo {self.silo} has left the consortium")
        if self.accepted not in (self.registered[0], *self.rotations):
            raise Problem(
                "not-accepted", f"the key with the fingerprint {key.fingerprint} is not accepted yet"
            )


class FakeRequests(HubRequests):
    """`HubRequests` to a hub in memory."""

    def __init__(self, hub: FakeHub, key: SigningKey) -> None:
        self._hub = hub
        self._key = key.verify_key

    @override
    async def enrol(self, token: str, version: str) -> str:
        hub = await self._begin("enrol")
        if hub.revoked or hub.token is None or token != hub.token:
            raise Problem("invitation-invalid", f"no invitation with this token is open for silo {hub.silo}")
        if hub.registered is not None and hub.registered[1] == token:
            if hub.registered[0] != self._key:
                raise Problem("invitation-used", "the invitation was used for another key")
            if hub.left:
                raise Problem("silo-left", f"silo {hub.silo} has left the consortium")
            return self._key.fingerprint
        hub.registered, hub.rotations, hub.announced, hub.left = (self._key, token), [], [], False
        return self._key.fingerprint

    @override
    async def agents(self, after: str, wait: float) -> AgentList | None:
        hub = await self._begin("agents")
        hub.require(self._key)
        if after == hub.agent_list().revision and wait > 0:
            changed = hub.change_event
            try:
                async with asyncio.timeout(wait):
                    await changed.wait()
            except TimeoutError:
                pass
            await self._begin("agents")
            hub.require(self._key)
        return None if after == hub.agent_list().revision else hub.agent_list()

    @override
    async def report(self, agent: str, uid: str, status: Mapping[str, Any]) -> None:
        hub = await self._begin("report")
        hub.require(self._key)
        if agent not in hub.agents or hub.agents[agent].uid != uid:
            raise Problem("unknown-agent", f"silo {hub.silo} has no SiloAgent {agent} with uid {uid}")
        hub.statuses[agent] = deepcopy(status)

    @override
    async def offer(self, statement: Mapping[str, Any]) -> None:
        hub = await self._begin("offer")
        hub.require(self._key)
        read_offer(statement, hub.silo, self._key.to_text())
        hub.offer = deepcopy(statement)

    @override
    async def rotate(self, rotation: Mapping[str, Any]) -> None:
        hub = await self._begin("rotate")
        assert hub.registered is not None
        key = VerifyKey.from_text(read_rotation(rotation, hub.silo, self._key.to_text()))
        if rotation in hub.announced:
            return
        if self._key in (hub.registered[0], *hub.rotations[:-1]) and self._key != hub.current_key():
            raise Problem("key-superseded", f"the silo has announced {hub.current_key().fingerprint} since")
        hub.require(self._key)
        if hub.rotation_refused is not None:
            raise hub.rotation_refused
        hub.rotations.append(key)
        hub.announced.append(deepcopy(dict(rotation)))
        hub.after_rotation()
        await asyncio.sleep(0)

    @override
    async def leave(self, statement: Mapping[str, Any]) -> None:
        hub = await self._begin("leave")
        read_leaving(statement, hub.silo, self._key.to_text())
        if hub.registered is None or hub.current_key() != self._key:
            raise Problem("signature-invalid", "the signature is not by the key that the silo has now")
        hub.left = True
        hub.news()

    async def _begin(self, verb: str) -> FakeHub:
        # As on any network: others go on meanwhile.
        await asyncio.sleep(0)
        self._hub.requests.append(verb)
        if isinstance(self._hub.away, Unreachable | Problem):
            raise self._hub.away
        return self._hub
