"""The hub of a trial: an API server with its objects, and the gateway's address, key and certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsilo.api.agent import agent_name
from fedsilo.api.observed import Object
from fedsilo.api.silo_status import HubAddress
from fedsilo.local.workdir import RunDirectory
from fedsilo.wire import SigningKey, VerifyKey, issue_server, make_authority
from fedsilo_operator.job.gateway import ROUTE, route_of, via_gateway
from fedsilo_operator.objects import JOB_UID, SILO_AGENT, SILO_KIND, Ref
from tests.operator_fakes.cluster import FakeCluster
from tests.ports import free_port

FAR_AWAY = "2100-01-01T00:00:00Z"


class HubSite:
    """What a gateway is started with.

    :ivar port: where it listens.
    :ivar ca: authority of its certificate.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        authority = make_authority()
        self.ca = authority.cert_pem.decode()
        certificate, key = issue_server(authority, ["127.0.0.1"])
        folder.mkdir(parents=True)
        (folder / "tls.crt").write_bytes(certificate)
        (folder / "tls.key").write_bytes(key)
        (folder / "ca.pem").write_text(self.ca)
        self.key = SigningKey.generate()
        self.key.save(folder / "key.pem")

    def address(self, seen: int) -> HubAddress:
        """The hub as institutions know it.

        :param seen: port at which they see it.
        """
        url = f"https://127.0.0.1:{seen}"
        return HubAddress(url=url, ca_certificate=self.ca, key=self.key.verify_key.to_text())

    def arguments(self, seen: int) -> list[str]:
        """Arguments of the gateway.

        :param seen: port at which institutions see it.
        """
        files = ["--key", str(self.folder / "key.pem"), "--ca", str(self.folder / "ca.pem")]
        url = f"https://127.0.0.1:{seen}"
        ports = ["--port", str(self.port), "--health-port", str(free_port())]
        return ["--url", url, "--tls", str(self.folder), *files, *ports]


def enrolled_silo(ref: Ref, key: VerifyKey) -> Object:
    """A remote Silo whose key was registered and accepted."""
    text = key.to_text()
    invitation = {"tokenDigest": "0" * 64, "expires": FAR_AWAY}
    enrolment = {
        "publicKey": text,
        "fingerprint": key.fingerprint,
        "tokenDigest": "0" * 64,
        "time": "2026-01-01T00:00:00Z",
        "version": "0.1.0",
    }
    return {
        "apiVersion": SILO_KIND.api,
        "kind": SILO_KIND.name,
        "metadata": {"namespace": ref.namespace, "name": ref.name},
        "spec": {"remote": {"invitation": invitation, "publicKey": text}},
        "status": {"enrolment": enrolment, "publicKey": text},
    }


def silo_agent(document: Object, silo: Ref) -> Object:
    """A SiloAgent of the hub, from what `fedsilo run` would write for the silo."""
    job = document["spec"]["job"]
    name = agent_name(job["name"], job["uid"], silo.namespace, silo.name)
    metadata = {"namespace": silo.namespace, "name": name, "labels": {JOB_UID: job["uid"]}}
    return {
        "apiVersion": SILO_AGENT.api,
        "kind": SILO_AGENT.name,
        "metadata": metadata,
        "spec": document["spec"],
    }


def populate(
    cluster: FakeCluster, workdir: RunDirectory, silos: Sequence[str], aggregator: int, gateway: HubAddress
) -> None:
    """The objects of a hub whose silos have all enrolled, and whose job is to run.

    :param aggregator: its port.
    """
    for silo in silos:
        document = json.loads((workdir.volume(silo).guard / "agent.json").read_text())
        ref = Ref(document["spec"]["silo"]["namespace"], silo)
        cluster.put(enrolled_silo(ref, SigningKey.load(workdir.volume(silo).guard / "key.pem").verify_key))
    propose(cluster, workdir, silos, aggregator, gateway)


def propose(
    cluster: FakeCluster, workdir: RunDirectory, silos: Sequence[str], aggregator: int, gateway: HubAddress
) -> None:
    """The SiloAgents of a job that is to run, as the job controller makes them."""
    for silo in silos:
        document = json.loads((workdir.volume(silo).guard / "agent.json").read_text())
        ref = Ref(document["spec"]["silo"]["namespace"], silo)
        key = SigningKey.load(workdir.volume(silo).guard / "key.pem").verify_key
        spec = document["spec"]
        bundle = spec["trust"] | {"url": f"https://127.0.0.1:{aggregator}"}
        way = gateway.model_dump(by_alias=True, include={"url", "ca_certificate"})
        spec["trust"] = via_gateway(way, bundle) | {"publicKey": key.to_text()}
        spec[ROUTE] = route_of(bundle)
        cluster.put(silo_agent(document, ref))


def lead(workdir: RunDirectory, silo: str, port: int, ca: str) -> None:
    """Tell a guard another address and authority than the aggregator's."""
    volume = workdir.volume(silo)
    for directory in (volume.root, volume.guard):
        path = directory / "agent.json"
        agent: Mapping[str, Any] = json.loads(path.read_text())
        agent["spec"]["trust"] |= {"url": f"https://127.0.0.1:{port}", "caCertificate": ca}
        path.write_text(json.dumps(agent))
