"""The requests of an institution to the hub's gateway: each once, with its proof; `docs/wire.md` specifies them.

Nothing is tried again here: what a failure means, and when to ask again, differs between an enrolment that a person
waits for and a poll that goes on for years. What an answer may hold is bounded, and what the hub says of agents counts
only with its signature, whoever stands between.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
from typing_extensions import override

from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import Problem
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import MAX_HUB_BYTES, STATUS, SigningKey, VerifyKey, open_agents, sign_request
from fedsilo.wire.problems import one_line

MAX_ANSWER_BYTES = 64 << 10
"""Length of any answer but that with SiloAgents."""

MAX_DETAIL_CHARACTERS = 1000
"""Characters of a refusal's text that are kept."""

ANSWER_SECONDS = 90.0
"""Time in which an answer has to be whole, beside the time for which the hub was asked to wait."""


@dataclass(frozen=True)
class HubAgent:
    """A SiloAgent as the hub has it.

    :param uid: its identity there; one of the same name with another is another.
    """

    name: str
    uid: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class AgentList:
    """All SiloAgents of the silo, at one moment.

    :param version: of two lists, the one with the greater is newer.
    :param revision: what to ask for the next one with.
    """

    version: int
    revision: str
    agents: tuple[HubAgent, ...]


class HubRequests(Protocol):
    """What a silo asks its hub; every verb raises `Problem` for a refusal and `Unreachable` where the hub gave no
    answer."""

    async def enrol(self, token: str, version: str) -> str:
        """Register the key with an invitation's token; returns the fingerprint that the office will compare."""

    async def agents(self, after: str, wait: float) -> AgentList | None:
        """The SiloAgents, unless within `wait` seconds they are still those of the revision `after`."""

    async def report(self, agent: str, uid: str, status: Mapping[str, Any]) -> None:
        """Say how the silo's part in a job is."""

    async def offer(self, statement: Mapping[str, Any]) -> None:
        """Publish the silo's signed offer."""

    async def rotate(self, rotation: Mapping[str, Any]) -> None:
        """Announce the key that takes over, in a statement of both; whoever asks has the key before."""

    async def leave(self, statement: Mapping[str, Any]) -> None:
        """Send the silo's signed statement that it leaves the consortium."""


class HubClient(HubRequests):
    """A silo's requests to its hub over HTTPS; `hub_client` opens one.

    :param hub_key: with which the hub signs.
    :param silo: `namespace/name` of the silo.
    :param key: the silo's.
    :param now: seconds since 1970.
    """

    def __init__(
        self,
        https: HttpsClient,
        hub_key: VerifyKey,
        silo: str,
        key: SigningKey,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._https = https
        self._hub_key = hub_key
        self._silo = silo
        self._key = key
        self._now = now

    @override
    async def enrol(self, token: str, version: str) -> str:
        asked = {
            "silo": self._silo,
            "token": token,
            "publicKey": self._key.verify_key.to_text(),
            "version": version,
        }
        body = json.dumps(asked).encode()
        async with self._request("POST", "/v1/enrolments", body) as answer:
            registered = _json(await self._body(answer, 201))
        fingerprint = self._key.verify_key.fingerprint
        if registered.get("fingerprint") != fingerprint:
            raise Problem("malformed", "the hub has registered another key; tell the consortium's office")
        return fingerprint

    @override
    async def agents(self, after: str, wait: float) -> AgentList | None:
        """The SiloAgents of the silo, in a list that the hub has signed for it.

        :raises Problem: also when what came is not signed by the hub, or not for this silo.
        """
        path = f"/v1/silos/{self._silo}/agents?after={quote(after, safe='')}&wait={wait:g}"
        async with self._request("GET", path, wait=wait) as answer:
            if answer.status == 204:
                return None
            body = await self._body(answer, 200, MAX_HUB_BYTES)
            if answer.content_type != "application/octet-stream":
                raise self._foreign_answer_error(answer)
        document = open_agents(body, self._hub_key, self._silo)
        agents = tuple(HubAgent(agent["name"], agent["uid"], agent["spec"]) for agent in document["agents"])
        return AgentList(document["version"], document["revision"], agents)

    @override
    async def report(self, agent: str, uid: str, status: Mapping[str, Any]) -> None:
        path = f"/v1/silos/{self._silo}/agents/{quote(agent, safe='')}/status"
        await self._send("PUT", path, {"uid": uid, "status": status})

    @override
    async def offer(self, statement: Mapping[str, Any]) -> None:
        await self._send("PUT", f"/v1/silos/{self._silo}/offer", statement)

    @override
    async def rotate(self, rotation: Mapping[str, Any]) -> None:
        await self._send("POST", f"/v1/silos/{self._silo}/key", rotation)

    @override
    async def leave(self, statement: Mapping[str, Any]) -> None:
        await self._send("PUT", f"/v1/silos/{self._silo}/leaving", statement)

    async def _send(self, method: str, path: str, document: Mapping[str, Any]) -> None:
        """A request whose answer says nothing but that it was taken."""
        async with self._request(method, path, json.dumps(document).encode()) as answer:
            await self._body(answer, 204)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes | None = None, wait: float = 0
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is no refusal; what goes wrong with the connection is said in words."""
        proof = sign_request(
            self._key,
            job=self._hub_key.key_id,
            sender=self._silo,
            method=method,
            path=path,
            body=body,
            now=self._now(),
        )
        headers = {"Authorization": proof} | ({} if body is None else {"Content-Type": "application/json"})
        try:
            async with (
                asyncio.timeout(wait + ANSWER_SECONDS),
                self._https.request(method, path, headers=headers, data=body) as answer,
            ):
                if answer.status >= 300:
                    raise await self._refusal(answer)
                yield answer
        except TimeoutError as error:
            text = f"{self._https.address}: an answer was not whole after {wait + ANSWER_SECONDS:g} s"
            raise Unreachable(
                f"{text}; it is asked for again, but look whether the connection is very slow"
            ) from error

    async def _body(
        self, answer: aiohttp.ClientResponse, status: int, limit: int = MAX_ANSWER_BYTES
    ) -> bytes:
        """The whole body of an answer from the hub, whose status must be the expected one.

        :raises Unreachable: when the status is another, or the body is longer than the limit.
        """
        body = await self._read(answer, limit)
        if answer.status != status:
            raise self._foreign_answer_error(answer)
        return body

    async def _read(self, answer: aiohttp.ClientResponse, limit: int) -> bytes:
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > limit:
                raise Unreachable(
                    f"{self._https.address}: an answer of more than {limit} bytes, which a hub does not give; compare "
                    "the URL with the hub's"
                )
        return bytes(body)

    async def _refusal(self, answer: aiohttp.ClientResponse) -> Exception:
        """The refusal that an answer carries, or who else has answered."""
        body = await self._read(answer, MAX_ANSWER_BYTES)
        document = _json(body)
        code = str(document.get("type")).removeprefix("urn:fedsilo:problem:")
        if code in STATUS:
            if (
                code == "proof-expired"
                and (fault := self._https.clock_fault(answer, self._now())) is not None
            ):
                return Problem(code, fault)
            return Problem(code, one_line(document.get("detail", ""))[:MAX_DETAIL_CHARACTERS])
        return self._foreign_answer_error(answer)

    def _foreign_answer_error(self, answer: aiohttp.ClientResponse) -> Unreachable:
        found = self._https.foreign_answer(answer)
        return Unreachable(
            found
            or f"{self._https.address}: status {answer.status}, which is no answer of fedsilo; it is tried again, but "
            "compare the URL with the hub's, and ask the hub whether its gateway runs"
        )


@asynccontextmanager
async def hub_client(
    address: HubAddress, silo: str, key: SigningKey, environment: Mapping[str, str] = os.environ
) -> AsyncIterator[HubClient]:
    """A client of the hub at an address, open for as long as the block.

    :param environment: where proxy and further authorities are named.
    """
    async with HttpsClient(address.url, address.ca_certificate, environment) as https:
        yield HubClient(https, VerifyKey.from_text(address.key), silo, key)


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}
