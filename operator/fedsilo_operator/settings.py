"""Settings of the controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

API_SERVER_PORTS = (443, 6443)
"""Usual ports of API servers: behind the Service `kubernetes`, and as network policies see it after translation."""

USER = 65_532
"""Number of the user and group of every process, as in the images, where the platform assigns none."""

PLATFORMS: Mapping[str, int | None] = {"kubernetes": USER, "openshift": None}
"""Platform -> user that pods are given, None where the platform assigns each namespace a range of its own."""


@dataclass(frozen=True)
class OutsideSettings:
    """How guards reach an aggregator outside of the cluster.

    :param networks: addresses, as CIDR, to which network policies let them; any when empty.
    :param proxy_secret: Secret whose entries HTTPS_PROXY and NO_PROXY name a proxy; None for the direct way.
    :param proxy_port: the proxy's port; None for the direct way.
    :param authorities: ConfigMap whose entry `ca.crt` has further authorities, such as of a proxy that looks into TLS.
    :param proxy: the proxy's URL, without user and password; None for the direct way, or where a Secret names it.
    :param no_proxy: hosts and networks that are reached without it, as in NO_PROXY.
    """

    networks: Sequence[str] = ()
    proxy_secret: str | None = None
    proxy_port: int | None = None
    authorities: str | None = None
    proxy: str | None = None
    no_proxy: str = ""


@dataclass(frozen=True, kw_only=True)
class SiloSettings:
    """Settings of the silo controller.

    :param guard_image: image of a guard whose Silo names none.
    :param trainer_image: image of a trainer whose job names none.
    :param metrics_from: labels of the namespaces that may ask aggregators for metrics; None to have neither
        aggregators nor guards serve any.
    :param user: user and group of all pods' processes and volumes; None where the platform assigns them.
    :param priority_class: PriorityClass of pods for which neither job nor Silo names one; None for the cluster's own.
    :param follows_hub: whether a hub has the keys of the Silos, and takes each next one before it is used.
    """

    guard_image: str
    trainer_image: str
    metrics_from: Mapping[str, str] | None = None
    outside: OutsideSettings = OutsideSettings()
    user: int | None = USER
    priority_class: str | None = None
    follows_hub: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings(SiloSettings):
    """Settings that hold for every object that is reconciled.

    :param aggregator_image: image of an aggregator whose job names none.
    :param namespace: the operator's own.
    :param api_server_ports: ports to which an aggregator may connect, to report into its job's status.
    :param master: secret from which the keys of all jobs derive, 32 bytes.
    :param gateway: whether a gateway in the operator's namespace connects institutions outside of the cluster to
        aggregators.
    """

    aggregator_image: str
    namespace: str
    master: bytes = field(repr=False)
    api_server_ports: Sequence[int] = API_SERVER_PORTS
    gateway: bool = False
