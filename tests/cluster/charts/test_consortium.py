"""A consortium as its members set it up: one operator and two silos by helm, the job by kubectl."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.invitation import read_invitation
from fedsilo.errors import Problem
from fedsilo.hub.client import HubClient, hub_client
from fedsilo.wire import SigningKey
from hack.cluster.kubectl import Kubectl
from tests.cluster.charts.helm import GLOBAL, SILO
from tests.cluster.charts.release import GATEWAY, HELM
from tests.cluster.federation import ClusterFederation, federation
from tests.cluster.namespace import Namespace, fresh_namespace, wait_until
from tests.pages import runs
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(900)

SILOS = ("north", "east")

SPEC: dict[str, Any] = {
    "training": {"rounds": 2, "localEpochs": 4},
    "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in SILOS]},
    "participation": {"minSilos": len(SILOS), "roundDeadline": "10m"},
}
KEY = "fedsilo-signing-key"


@pytest.fixture(scope="module")
def consortium(kubectl: Kubectl, released_operator: Namespace) -> Iterator[ClusterFederation]:
    """Two institutions, each with a release of its own, and a job, which is not yet applied."""
    with federation(kubectl, "fedavg.yaml", **SPEC) as made:
        kubectl.apply(*(item for item in made.objects if item["kind"] == "Namespace"))
        for name in SILOS:
            silo("install", made, name)
        yield made


def silo(verb: str, consortium: ClusterFederation, name: str, **values: Any) -> None:
    """Install or upgrade the release of an institution."""
    given = {"global": GLOBAL} | consortium.silo_object(name)["spec"]
    HELM.run(verb, name, str(SILO), "-n", consortium.silo(name).name, values=given | values)


@runs("charts/fedsilo/README.md", "helm test fedsilo -n fedsilo-system")
def test_every_operator_has_seen_the_whole_cluster(released_operator: Namespace, terminal: Terminal) -> None:
    (command,) = terminal.commands
    assert "Phase:          Succeeded" in terminal.type(command)
    assert not released_operator.select("pods", "app.kubernetes.io/component=test")


async def test_an_institution_is_invited_accepted_and_revoked(
    kubectl: Kubectl, released_operator: Namespace, tmp_path: Path
) -> None:
    """What the gateway's account may do is enough, and it asks the API server anew whom it answers."""
    with (
        fresh_namespace(kubectl) as home,
        released_operator.forward_port("service/fedsilo-gateway", 443, GATEWAY.port),
    ):
        here = ("-n", home.name)
        invitation = read_invitation(kubectl.fedsilo("invite", "clinic", *here), "the invitation")
        assert (invitation.hub.url, invitation.silo) == (GATEWAY.url, f"{home.name}/clinic")
        key = SigningKey.from_seed(b"c" * 32)
        async with hub_client(invitation.hub, invitation.silo, key) as hub:
            fingerprint = await hub.enrol(invitation.token, "0.1.0")
            assert "has not accepted" in await gateway_answer(hub)
            assert fingerprint in kubectl.fedsilo("accept", "clinic", "--yes", *here)
            await answers(hub, "agents: 0")
            assert home.get("silo", "clinic")["spec"]["remote"]["publicKey"] == key.verify_key.to_text()
            wait_until(lambda: home.get("silo", "clinic")["status"].get("publicKey"), "the published key")
            kubectl.fedsilo("revoke", "clinic", "--yes", *here)
            await answers(hub, "revoked")


@runs("docs/consortium.md")
async def test_the_office_invites_compares_fingerprints_accepts_and_revokes(
    kubectl: Kubectl, released_operator: Namespace, terminal: Terminal
) -> None:
    made, invited, watched, accepted, revoked = terminal.commands
    key = SigningKey.from_seed(b"d" * 32)

    async def type_command(command: str, answer: str | None = None) -> str:
        return await asyncio.to_thread(lambda: terminal.type(command, answer=answer))

    try:
        with released_operator.forward_port("service/fedsilo-gateway", 443, GATEWAY.port):
            await type_command(made)
            await type_command(invited)
            text = (terminal.folder / "invitation.yaml").read_text()
            invitation = read_invitation(text, "invitation.yaml")
            async with hub_client(invitation.hub, invitation.silo, key) as hub:
                fingerprint = await hub.enrol(invitation.token, "0.1.0")
                async with asyncio.timeout(30):
                    while "EnrolmentPending" not in (seen := await type_command(watched)):
                        await asyncio.sleep(0.1)
                assert fingerprint in seen
                assert fingerprint in await type_command(accepted, "y")
                await answers(hub, "agents: 0")
                assert "is revoked" in await type_command(revoked, "y")
                await answers(hub, "revoked")
    finally:
        kubectl.run("delete", "namespace", "silo-clinic", "--ignore-not-found", "--wait")


async def gateway_answer(hub: HubClient) -> str:
    """What the gateway says to who asks for the silo's agents."""
    try:
        found = await hub.agents("", 0)
    except Problem as refused:
        return str(refused)
    return f"agents: {len(found.agents) if found else None}"


async def answers(hub: HubClient, words: str) -> None:
    """Wait until the gateway, which hears of a change a moment later, says this."""
    async with asyncio.timeout(30):
        while words not in await gateway_answer(hub):
            await asyncio.sleep(0.05)


def test_a_silo_that_is_uninstalled_and_installed_again_keeps_its_key(consortium: ClusterFederation) -> None:
    north = consortium.silo("north")
    key, secret = public_key(north), north.get("secret", KEY)
    HELM.run("uninstall", "north", "-n", north.name, "--wait")
    silo("install", consortium, "north")
    assert public_key(north) == key
    assert north.get("secret", KEY)["metadata"]["uid"] == secret["metadata"]["uid"]

    consortium.kubectl.apply(consortium.job)
    assert consortium.wait_complete()["progress"] == "2/2"


def public_key(place: Namespace) -> str:
    """What the silo publishes."""

    def published_key() -> str | None:
        found = place.find("silo", "north") or {}
        return str(found.get("status", {}).get("publicKey") or "") or None

    return wait_until(published_key, f"the key of {place.name}")
