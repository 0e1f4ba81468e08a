"""The hub's gateway as tests install it: the chart's values for one that serves HTTPS itself, under an authority of the
test's own."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from fedsilo.api.observed import Object
from hack.cluster.certificates import Authority, Pair
from hack.operator import NAMESPACE
from tests.cluster.charts.helm import Values

SECRET = "gateway-tls"


@dataclass(frozen=True)
class GatewayAddress:
    """Where institutions reach it, and who vouches for that."""

    host: str
    port: int
    authority: Authority = field(default_factory=lambda: Authority("fedsilo-hub"))

    @property
    def url(self) -> str:
        """The gateway's URL that invitations name."""
        return f"https://{self.host}:{self.port}"

    @property
    def ca(self) -> str:
        """The authority in PEM."""
        return self.authority.pair().cert.decode()

    def certificate(self) -> Pair:
        """A new certificate for this address."""
        return self.authority.issue("hub", addresses=[self.host])

    def secret(self) -> Object:
        """With a certificate, for the gateway."""
        pair = self.certificate()
        data = {
            "tls.crt": base64.b64encode(pair.cert).decode(),
            "tls.key": base64.b64encode(pair.key).decode(),
        }
        metadata = {"name": SECRET, "namespace": NAMESPACE}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": data,
        }

    def values(self, *, tls: bool = True) -> Values:
        """The chart's section `gateway`.

        :param tls: whether it serves HTTPS itself; otherwise something before it does.
        """
        return {"enabled": True, "url": self.url, "ca": self.ca, "tlsSecret": SECRET if tls else ""}
