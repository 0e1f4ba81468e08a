"""A hub over a cluster in memory, reached over TLS, and institutions that ask it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo.wire import SigningKey, make_authority, sign_request
from fedsilo_operator.cluster.interface import ClusterError
from fedsilo_operator.gateway.hub import HubIdentity
from fedsilo_operator.gateway.limits import Limits
from fedsilo_operator.gateway.running import Gateway
from fedsilo_operator.objects import JOB_UID, SILO_KIND, Kind, Ref
from tests.integration.gateway.place import server_tls
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.silo.harness import CERTIFICATE
from tests.unit.operator.silo.harness import agent as an_agent

NORTH, SOUTH = Ref("silo-north", "north"), Ref("silo-south", "south")
TOKEN = "a-token-of-which-nobody-else-knows"


class RunningHub:
    """A hub over a cluster in memory, and institutions that ask it."""

    def __init__(self, root: Path) -> None:
        self.cluster = FakeCluster(faults=self._fault)
        self.identity = HubIdentity(SigningKey.generate(), "https://hub.example")
        self.keys = {ref: SigningKey.generate() for ref in (NORTH, SOUTH)}
        self.broken: ClusterError | None = None
        self._authority, self._root = make_authority(), root
        self.authority_pem = self._authority.cert_pem.decode()
        self.gateway: Gateway
        self.client: aiohttp.ClientSession

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunningHub]:
        self.gateway = Gateway(self.cluster, self.identity, Limits(requests_per_second=1000, burst=1000))
        tls = server_tls(self._root, self._authority)
        work = asyncio.ensure_future(self.gateway.run("127.0.0.1", 0, tls))
        try:
            while self.gateway.unready_reason():
                assert not work.done()
                await asyncio.sleep(0.001)
            trusted = ssl.create_default_context(cadata=self._authority.cert_pem.decode())
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as self.client:
                yield self
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def invite(self, ref: Ref = NORTH, token: str = TOKEN, days: int = 7, **remote: Any) -> None:
        expires = timestamp(datetime.now(UTC) + timedelta(days=days))
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.put_silo(ref, {"invitation": {"tokenDigest": digest, "expires": expires}, **remote})

    def put_silo(self, ref: Ref, remote: Object) -> None:
        metadata = {"name": ref.name, "namespace": ref.namespace}
        obj = {"apiVersion": SILO_KIND.api, "kind": "Silo", "metadata": metadata, "spec": {"remote": remote}}
        with suppress(Exception):
            obj["status"] = self.cluster.peek(SILO_KIND, ref)["status"]
        self.cluster.put(obj)

    def accept(self, ref: Ref = NORTH, **remote: Any) -> None:
        before = self.cluster.peek(SILO_KIND, ref)["spec"]["remote"]
        self.put_silo(ref, {**before, "publicKey": self.keys[ref].verify_key.to_text(), **remote})

    def propose(self, ref: Ref = NORTH, name: str = "digits-north-1") -> Object:
        made = an_agent()
        made["metadata"] = {
            "name": name,
            "namespace": ref.namespace,
            "labels": {JOB_UID: made["spec"]["job"]["uid"]},
        }
        trust = {**made["spec"]["trust"], "url": f"https://127.0.0.1:{self.gateway.port}"}
        del trust["address"]  # which only the hub's own cluster has
        made["spec"] = {
            **made["spec"],
            "trust": trust,
            "silo": {"namespace": ref.namespace, "name": ref.name},
            "route": {"url": "https://digits-aggregator.federation.svc:8443", "caCertificate": CERTIFICATE},
        }
        made.pop("status", None)
        return self.cluster.put(made)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        ref: Ref = NORTH,
        key: SigningKey | None = None,
        **proof: Any,
    ) -> tuple[int, str, Any]:
        """Status, problem code and content of the answer."""
        data = None if body is None else json.dumps(body).encode()
        given: dict[str, Any] = {"job": self.identity.id, "sender": str(ref), "now": time.time()} | proof
        header = sign_request(key or self.keys[ref], method=method, path=path, body=data, **given)
        url = f"https://127.0.0.1:{self.gateway.port}{path}"
        async with self.client.request(method, url, data=data, headers={"Authorization": header}) as answer:
            content = await answer.read()
            code = answer.headers.get("Problem", "")
            return answer.status, code, json.loads(content) if code else content

    async def enrol(
        self, ref: Ref = NORTH, token: str = TOKEN, key: SigningKey | None = None, **proof: Any
    ) -> Any:
        key = key or self.keys[ref]
        body = {"silo": str(ref), "token": token, "publicKey": key.verify_key.to_text(), "version": "0.1.0"}
        return await self.ask("POST", "/v1/enrolments", body, ref, key, **proof)

    async def join(self, ref: Ref = NORTH) -> None:
        """Invite, enrol and accept, and wait until the gateway has seen it."""
        self.invite(ref)
        assert await self.settled_status(lambda: self.enrol(ref), "invitation-invalid") == 201
        self.accept(ref)
        path = agents_path("nothing", ref)
        assert await self.settled_status(lambda: self.ask("GET", path, ref=ref), "not-accepted") == 200

    async def settled_status(self, ask: Any, until_not: str) -> int:
        """The status of an answer once the gateway's cache has followed what was put into the cluster."""
        while True:
            status, code, _ = await ask()
            if code != until_not:
                return int(status)

    def status(self, kind: Kind = SILO_KIND, ref: Ref = NORTH) -> Object:
        return self.cluster.peek(kind, ref).get("status") or {}

    def _fault(self, verb: str, kind: Kind) -> ClusterError | None:
        return self.broken if verb in ("apply", "get") else None


def agents_path(after: str = "", ref: Ref = NORTH, wait: float = 0) -> str:
    return f"/v1/silos/{ref.namespace}/{ref.name}/agents?after={after}&wait={wait:g}"
