"""A hub over a cluster in memory, with the real gateway, and an institution that joins it by the real commands."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from fedsilo.api.agent import agent_name
from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.observed import Object
from fedsilo.api.silo_status import HubAddress
from fedsilo.api.timestamps import timestamp
from fedsilo.institution.directory import SiloDirectory
from fedsilo.wire import SigningKey, make_authority
from fedsilo_operator.gateway.forwarding import Route
from fedsilo_operator.gateway.hub import Hub, HubIdentity
from fedsilo_operator.gateway.limits import Limits
from fedsilo_operator.gateway.running import Gateway
from fedsilo_operator.objects import JOB_UID, SILO_AGENT, SILO_KIND, Ref
from tests import warm
from tests.integration.gateway.place import server_tls
from tests.integration.service.site import Site, federation, wait_until
from tests.operator_fakes.cluster import FakeCluster
from tests.ports import free_port

NORTH = Ref("silo-north", "north")
DIGITS = {"classes": 10, "inputShape": [8, 8]}


class Consortium:
    """A hub with one institution outside, `silo-north/north`, in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cluster = FakeCluster()
        self.identity = SigningKey.generate()
        self.authority = make_authority()
        self.port = free_port()
        self.directory = SiloDirectory(root / "silo")
        self.routes: dict[str, Route] = {}
        self.log = root / "serve.log"
        self.site: Site

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Gateway]:
        """The hub's gateway, reachable for as long as the block."""
        ca = self.authority.cert_pem.decode()
        identity = HubIdentity(self.identity, self.url, ca)
        gateway = Gateway(self.cluster, identity, Limits(requests_per_second=1000, burst=1000))
        tls = server_tls(self.root / "gateway", self.authority)
        work = asyncio.ensure_future(gateway.run("127.0.0.1", self.port, tls))
        try:
            while gateway.unready_reason():
                assert not work.done()
                await asyncio.sleep(0.001)
            yield gateway
        finally:
            await asyncio.sleep(
                0.05
            )  # so that it has taken whatever connection a process had begun that was killed
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def invite(self, token: str = "once", days: int = 7) -> Path:
        """The file that `kubectl fedsilo invite` prints."""
        expires = timestamp(datetime.now(UTC) + timedelta(days=days))
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.put_silo({"invitation": {"tokenDigest": digest, "expires": expires}})
        hub = HubAddress(
            url=self.url,
            ca_certificate=self.authority.cert_pem.decode(),
            key=self.identity.verify_key.to_text(),
        )
        invitation = SiloInvitation.of(hub, str(NORTH), token, Time(expires))
        path = self.root / "invitation.yaml"
        path.write_text(invitation.to_yaml())
        return path

    def accept(self) -> None:
        """What `kubectl fedsilo accept` does."""
        before = self.cluster.peek(SILO_KIND, NORTH)
        key = before["status"]["enrolment"]["publicKey"]
        self.put_silo(before["spec"]["remote"] | {"publicKey": key})

    def put_silo(self, remote: Object) -> None:
        metadata = {"name": NORTH.name, "namespace": NORTH.namespace}
        obj = {"apiVersion": SILO_KIND.api, "kind": "Silo", "metadata": metadata, "spec": {"remote": remote}}
        with suppress(Exception):
            obj["status"] = self.cluster.peek(SILO_KIND, NORTH)["status"]
        self.cluster.put(obj)

    async def join(self) -> str:
        """Join and be accepted; what the command said."""
        done = await self.command("join", str(self.invite()), "--dir", str(self.directory.root))
        assert done.returncode == 0, done.stderr
        self.accept()
        return done.stdout

    async def command(self, *arguments: str) -> CompletedProcess[str]:
        """Run `fedsilo silo ...` to its end."""
        return await asyncio.to_thread(warm.run, PROGRAM, ["silo", *arguments], env=ENVIRONMENT)

    def offer(self, policy: Object | None = None) -> None:
        """Write the institution's `silo.yaml` with one dataset."""
        silo = {
            "apiVersion": "fedsilo.io/v1alpha1",
            "kind": "Silo",
            "metadata": {"namespace": NORTH.namespace, "name": NORTH.name},
            "spec": {"datasets": [{"name": "digits", "loader": "sklearn:digits"}], "policy": policy or {}},
        }
        self.directory.silo_file.write_text(yaml.safe_dump(silo))

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[bytes]]:
        """`fedsilo silo serve`, until the end of the block."""
        process = self.serve()
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def serve(self) -> subprocess.Popen[bytes]:
        """Start `fedsilo silo serve`."""
        arguments = ["silo", "serve", "--dir", str(self.directory.root)]
        with self.log.open("ab") as output:
            return warm.start(PROGRAM, arguments, env=ENVIRONMENT, stdout=output, stderr=output)

    def propose(self, rounds: int = 2) -> None:
        """Make a job with this institution and a silo beside the aggregator, and ask this one for its part."""
        root = self.root / "job"
        key = root / "silos" / NORTH.name / "guard" / "key.pem"
        key.parent.mkdir(parents=True)
        key.write_bytes(self.directory.key_file.read_bytes())
        self.site = Site(root, federation(rounds=rounds, data=DIGITS))
        spec = self.site.agent(NORTH.name)["spec"]
        trust = spec["trust"]
        public = self.directory.signing_key().verify_key
        self.routes[self.site.uid] = Route(trust["url"], trust["caCertificate"], public)
        trust |= {"url": self.url, "caCertificate": self.authority.cert_pem.decode()}
        self.put_agent(spec | {"suspend": True})

    @property
    def agent(self) -> Ref:
        """Reference to the SiloAgent of the silo north."""
        name = agent_name("attacked", self.site.uid, NORTH.namespace, NORTH.name)
        return Ref(NORTH.namespace, name)

    def put_agent(self, spec: Object) -> None:
        metadata = {"name": self.agent.name, "namespace": NORTH.namespace, "labels": {JOB_UID: self.site.uid}}
        obj = {"apiVersion": SILO_AGENT.api, "kind": "SiloAgent", "metadata": metadata, "spec": spec}
        with suppress(Exception):
            before = self.cluster.peek(SILO_AGENT, self.agent)
            obj |= {"status": before.get("status") or {}}
            metadata |= {"uid": before["metadata"]["uid"]}
        self.cluster.put(obj)

    def suspend(self, suspended: bool) -> None:
        """What the job controller changes of an agent."""
        self.put_agent(self.cluster.peek(SILO_AGENT, self.agent)["spec"] | {"suspend": suspended})

    def status(self) -> Object:
        """What the hub knows of the agent."""
        found: Object = self.cluster.peek(SILO_AGENT, self.agent).get("status") or {}
        return found

    async def wait_reported(self, phase: str) -> Object:
        """Wait until the institution has reported that phase."""

        def look() -> Object | None:
            status = self.status()
            return status if status.get("phase") == phase else None

        try:
            return await asyncio.to_thread(wait_until, look, phase)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.status()}\n{self.log.read_text()}") from late

    def audit(self) -> Path:
        """The audit log of the part."""
        uid = self.cluster.peek(SILO_AGENT, self.agent)["metadata"]["uid"]
        return self.directory.volume(uid).audit / "log.jsonl"


PROGRAM = "fedsilo.cli.main"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def model_of(site: Site) -> str:
    """Digest of the model."""
    return hashlib.sha256((site.workdir.aggregator / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
async def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Consortium:
    found = Consortium(tmp_path)

    def route(_: Hub, job: str, silo: str) -> Route | None:
        return found.routes.get(job) if silo == str(NORTH) else None

    monkeypatch.setattr(Hub, "route", route)
    return found
