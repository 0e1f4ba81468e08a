"""How a guard reaches its aggregator: straight inside the cluster, through the institution's proxy out of it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from fedsilo.api.agent import TrustBundle
from fedsilo_operator.settings import OutsideSettings
from fedsilo_operator.workloads.pod import AUTHORITIES, Mount


def way_out(trust: TrustBundle, outside: OutsideSettings) -> dict[str, str]:
    """Variables of a guard's container.

    An aggregator inside the cluster is never reached through a proxy, also where a platform names one to every pod.
    """
    variables = {"SSL_CERT_FILE": f"{AUTHORITIES}/ca.crt"} if outside.authorities else {}
    if trust.address is not None:
        return variables | {"NO_PROXY": str(urlsplit(trust.url).hostname)}
    if outside.proxy is not None:
        variables |= {"HTTPS_PROXY": outside.proxy, "NO_PROXY": outside.no_proxy}
    return variables


def authorities(outside: OutsideSettings) -> Iterator[Mount]:
    """The mount of further authorities, where there are any."""
    if outside.authorities is not None:
        yield Mount("authorities", {"configMap": {"name": outside.authorities}}, AUTHORITIES)
