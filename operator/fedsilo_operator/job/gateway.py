"""How a silo reaches the aggregator where its institution is outside of the cluster: by the hub's gateway alone.

The gateway writes its address into the Silo's status. The silo's agent has that address and its authority in the trust
bundle, and what the gateway needs to reach the aggregator beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsilo.api.observed import Object, status_of
from fedsilo_operator.institution import remote_of

ROUTE = "route"
"""Field of a SiloAgent's spec with the gateway's way to the aggregator."""


def gateway_of(silo: Object | None) -> Mapping[str, str] | None:
    """URL and, where it is private, authority of the gateway that a remote silo uses; None where none is known."""
    hub = status_of(silo or {}).get("hub")
    if remote_of(silo) is None or hub is None:
        return None
    return {name: hub[name] for name in ("url", "caCertificate") if hub.get(name) is not None}


def via_gateway(gateway: Mapping[str, str], bundle: Mapping[str, str]) -> dict[str, str]:
    """The trust bundle of a silo that reaches the aggregator by a gateway.

    :param bundle: that of a silo which reaches it itself.
    """
    return {"taskKey": bundle["taskKey"], **gateway}


def route_of(bundle: Mapping[str, str]) -> dict[str, str]:
    """The gateway's own way: that of a silo which reaches the aggregator itself."""
    return {name: bundle[name] for name in ("url", "caCertificate")}
