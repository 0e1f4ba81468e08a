"""The operator's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

API_SERVER_PORTS = (443, 6443)
"""Usual ports of API servers: behind the Service `kubernetes`, and as network policies see it after translation."""


@dataclass(frozen=True)
class Settings:
    """Settings that hold for every object that is reconciled.

    :param aggregator_image: image of an aggregator whose job names none; likewise guard and trainer.
    :param namespace: the operator's own.
    :param api_server_ports: ports to which an aggregator may connect, to report into its job's status.
    :param master: secret from which the keys of all jobs derive, 32 bytes.
    :param metrics_from: labels of the namespaces that may ask aggregators for metrics; None to have neither
        aggregators nor guards serve any.
    :param gateway: whether a gateway in the operator's namespace connects institutions outside of the cluster to
        aggregators.
    """

    aggregator_image: str
    guard_image: str
    trainer_image: str
    namespace: str
    master: bytes = field(repr=False)
    api_server_ports: Sequence[int] = API_SERVER_PORTS
    metrics_from: Mapping[str, str] | None = None
    gateway: bool = False
