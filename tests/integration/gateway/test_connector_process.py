"""The connector as a process: the real one, over the API of its cluster, at the real gateway over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.agent import Proposal, agent_name
from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.observed import Object, condition
from fedsilo.api.proposal import proposal_digest
from fedsilo.api.silo_status import HubAddress
from fedsilo.silo.decision import read_decision
from fedsilo_operator.cluster.interface import NotFound
from fedsilo_operator.objects import LEASE, SECRET, SILO_AGENT, SILO_KIND, Kind, Ref
from tests.integration.gateway.running_hub import NORTH, TOKEN, RunningHub
from tests.operator_fakes.served import ServedCluster
from tests.ports import free_port
from tests.unit.operator.silo.harness import JOB_REF, UID, silo

NAME = agent_name(JOB_REF.name, UID, NORTH.namespace, NORTH.name)


class ConnectorSite:
    """The institution's cluster, and the hub."""

    def __init__(self, folder: Path, hub: RunningHub, cluster: ServedCluster) -> None:
        self.folder = folder
        self.hub = hub
        self.cluster = cluster
        self.health = free_port()
        self.invitation = folder / "invitation.yaml"
        address = HubAddress(
            url=f"https://127.0.0.1:{hub.gateway.port}",
            ca_certificate=hub.authority_pem,
            key=hub.identity.key.verify_key.to_text(),
        )
        found = SiloInvitation.of(address, str(NORTH), TOKEN, Time("2099-01-01T00:00:00Z"))
        self.invitation.write_text(found.to_yaml())

    @asynccontextmanager
    async def connector(self, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The process, killed at the end of the block if it still runs."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fedsilo_operator.connector", f"--invitation={self.invitation}"),
            *("--guard-image=guard:1", "--trainer-image=trainer:1", f"--namespace={NORTH.namespace}"),
            f"--health-port={self.health}",
            env=os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig)} | environment,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    def install(self) -> None:
        """The Silo, as a release makes it."""
        made = silo()
        del made["status"]
        made["metadata"] = {"name": NORTH.name, "namespace": NORTH.namespace}
        self.cluster.ask(lambda cluster: cluster.put(made, "helm"))

    def peek(self, kind: Kind, ref: Ref) -> Object:
        """An object of the institution's cluster; empty where it is not there."""

        def found_object(cluster: Any) -> Object:
            try:
                return dict(cluster.peek(kind, ref))
            except NotFound:
                return {}

        return self.cluster.ask(found_object)

    def hub_reason(self) -> Any:
        """Reason of the condition about the hub."""
        return (condition(self.peek(SILO_KIND, NORTH), "HubReached") or {}).get("reason")

    async def wait_until(self, what: Callable[[], Any]) -> None:
        """Wait until something is true."""
        async with asyncio.timeout(60):
            while not what():
                await asyncio.sleep(0.02)


@contextmanager
def serve_cluster(folder: Path) -> Iterator[ServedCluster]:
    with ServedCluster(folder / "kubeconfig") as cluster:
        yield cluster


@pytest.fixture
async def connector_site(tmp_path: Path) -> AsyncIterator[ConnectorSite]:
    async with RunningHub(tmp_path / "hub").running() as hub:
        with serve_cluster(tmp_path) as cluster:
            yield ConnectorSite(tmp_path, hub, cluster)


async def test_an_institution_joins_decides_and_goes_on_after_a_kill(connector_site: ConnectorSite) -> None:
    connector_site.install()
    connector_site.hub.invite()
    async with connector_site.connector() as process:
        await connector_site.wait_until(lambda: connector_site.hub_reason() == "EnrolmentPending")
        enrolment = connector_site.hub.status()["enrolment"]
        published = connector_site.peek(SILO_KIND, NORTH)["status"]["publicKey"]
        assert enrolment["publicKey"] == published
        before = connector_site.hub.cluster.peek(SILO_KIND, NORTH)["spec"]["remote"]
        connector_site.hub.put_silo(NORTH, {**before, "publicKey": published})
        await connector_site.wait_until(lambda: connector_site.hub_reason() == "HubReached")
        await connector_site.wait_until(lambda: connector_site.hub.status().get("offer"))
        assert connector_site.peek(LEASE, Ref(NORTH.namespace, "fedsilo-connector"))
        process.kill()
        await process.communicate()
    proposed = connector_site.hub.propose(name=NAME)
    # The lease of the one that was killed has to run out; nobody leads until then.
    connector_site.cluster.ask(
        lambda cluster: cluster.remove(LEASE, Ref(NORTH.namespace, "fedsilo-connector"))
    )
    async with connector_site.connector() as process:
        place = Ref(NORTH.namespace, NAME)
        await connector_site.wait_until(lambda: connector_site.hub.status(SILO_AGENT, place).get("decision"))
        status = connector_site.hub.status(SILO_AGENT, place)
        decision = read_decision(status["decision"], published)
        assert decision.proposal == proposal_digest(Proposal.model_validate(status["proposal"]))
        assert status["proposal"]["guardImage"] == "guard:1"
        assert connector_site.peek(SILO_AGENT, place)["spec"]["trust"] == proposed["spec"]["trust"]
        assert connector_site.hub.status()["enrolment"] == enrolment
        url = f"http://127.0.0.1:{connector_site.health}/readyz"
        assert await asyncio.to_thread(lambda: urllib.request.urlopen(url).status) == 200
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0
    assert connector_site.peek(SECRET, Ref(NORTH.namespace, "fedsilo-signing-key"))


@pytest.mark.thorough
async def test_an_invitation_that_was_changed_or_is_for_another_namespace_ends_it_with_a_word(
    connector_site: ConnectorSite,
) -> None:
    text = connector_site.invitation.read_text()
    for changed, said in (
        (text.replace("token: a-token", "token: b-token"), "does not fit the rest of the file"),
        (None, "(No such file or directory); give the file"),
    ):
        if changed is None:
            connector_site.invitation.unlink()
        else:
            assert changed != text
            connector_site.invitation.write_text(changed)
        async with connector_site.connector() as process:
            _, errors = await process.communicate()
        assert process.returncode == 2
        assert said in errors.decode()
        assert "Traceback" not in errors.decode()
    connector_site.invitation.write_text(
        SiloInvitation.of(
            HubAddress(url="https://hub.example", key=connector_site.hub.identity.key.verify_key.to_text()),
            "elsewhere/north",
            TOKEN,
            Time("2099-01-01T00:00:00Z"),
        ).to_yaml()
    )
    async with connector_site.connector() as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert "install it in namespace elsewhere" in errors.decode()


@pytest.mark.thorough
async def test_a_proxy_that_is_away_is_named_in_the_silo_and_one_that_is_none_at_the_start(
    connector_site: ConnectorSite,
) -> None:
    connector_site.install()
    address = HubAddress(url="https://hub.example", key=connector_site.hub.identity.key.verify_key.to_text())
    away = SiloInvitation.of(address, str(NORTH), TOKEN, Time("2099-01-01T00:00:00Z"))
    connector_site.invitation.write_text(away.to_yaml())
    async with connector_site.connector(HTTPS_PROXY="http://user:secret@127.0.0.1:1"):
        await connector_site.wait_until(lambda: connector_site.hub_reason() == "HubUnreachable")
    said = condition(connector_site.peek(SILO_KIND, NORTH), "HubReached") or {}
    assert "the proxy 127.0.0.1:1 (HTTPS_PROXY) refuses connections" in said["message"]
    assert "secret" not in json.dumps(connector_site.peek(SILO_KIND, NORTH))
    async with connector_site.connector(HTTPS_PROXY="socks5://127.0.0.1:1") as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert "HTTPS_PROXY: proxies of type socks5 are not supported" in errors.decode()
