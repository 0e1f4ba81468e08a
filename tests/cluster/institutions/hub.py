"""The hub with its gateway beside the operator that the tests share, and what stands before it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.operator import NAMESPACE
from tests.cluster.charts.helm import OPERATOR, Helm, images, objects
from tests.cluster.institutions.edges import Edge
from tests.cluster.institutions.gateway import GatewayAddress
from tests.cluster.namespace import Namespace

KEY = "test-gateway-key"
SERVICE = "fedsilo-gateway"
ROLLOUT_SECONDS = 120


@dataclass(frozen=True)
class Hub:
    """The consortium's side of the tests with institutions: the hub and its gateway on the cluster."""

    kubectl: Kubectl
    address: GatewayAddress

    @property
    def system(self) -> Namespace:
        """Where the gateway runs."""
        return Namespace(self.kubectl, NAMESPACE)

    def serve(self, *, tls: bool) -> str:
        """Have the gateway run; its address in the cluster, `host:port`.

        :param tls: whether it serves HTTPS itself, or HTTP to what ends TLS before it.
        """
        self.kubectl.apply(*self._objects(tls=tls))
        self._rolled_out()
        service = self.system.get("service", SERVICE)["spec"]
        return f"{service['clusterIP']}:{service['ports'][0]['port']}"

    @contextmanager
    def serve_gateway(self, edge: Edge, folder: Path, *, tls: bool) -> Iterator[None]:
        """The gateway, and what stands before it, for as long as the block runs.

        :param tls: see `serve`.
        """
        with edge(folder, self.serve(tls=tls), self.address.certificate()):
            yield

    def restart(self) -> None:
        """Have another process take the place of the gateway's."""
        self.system.run("rollout", "restart", f"deployment/{SERVICE}")
        self._rolled_out()

    def _rolled_out(self) -> None:
        rollout = ("rollout", "status", f"deployment/{SERVICE}", f"--timeout={ROLLOUT_SECONDS}s")
        self.system.run(*rollout, timeout=ROLLOUT_SECONDS + 10)

    def stop(self) -> None:
        """Take the gateway away."""
        for kind in ("deployment", "service", "networkpolicy", "serviceaccount", "configmap", "secret"):
            self.system.run(
                "delete", kind, "-l", "app.kubernetes.io/instance=institutions", "--ignore-not-found"
            )
        self.kubectl.run("delete", "clusterrole,clusterrolebinding", SERVICE, "--ignore-not-found")
        self.system.run(
            "delete", "secret", KEY, self.address.secret()["metadata"]["name"], "--ignore-not-found"
        )

    def invite(self, namespace: Namespace, name: str, file: Path) -> Path:
        """What the consortium's office does first; the invitation."""
        file.write_text(self.kubectl.fedsilo("invite", name, "-n", namespace.name))
        return file

    def accept(self, namespace: Namespace, name: str, fingerprint: str) -> None:
        """What it does when the institution has read its fingerprint out."""
        said = self.kubectl.fedsilo("accept", name, "--yes", "-n", namespace.name)
        assert fingerprint in said, said

    def _objects(self, *, tls: bool) -> list[Object]:
        """What the chart makes of the gateway alone."""
        gateway = self.address.values(tls=tls) | {"keySecret": KEY}
        text = Helm().run(
            *("template", "institutions", str(OPERATOR), "-n", NAMESPACE),
            *("--show-only", "templates/gateway.yaml"),
            values={**images(), "gateway": gateway},
        )
        return [self.address.secret(), _key(), *objects(text)]


def _key() -> Object:
    """The hub's key, the same as long as the tests run."""
    pem = _PRIVATE_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    metadata = {"name": KEY, "namespace": NAMESPACE}
    data = {"key.pem": base64.b64encode(pem).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


_PRIVATE_KEY = Ed25519PrivateKey.generate()


@contextmanager
def hub_with_gateway(kubectl: Kubectl, address: GatewayAddress) -> Iterator[Hub]:
    """The gateway, which is taken away after the block."""
    hub = Hub(kubectl, address)
    try:
        yield hub
    finally:
        hub.stop()
