"""What a gateway serves at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.metrics import Exposition, Sample, Series
from fedsilo_operator.cluster import requests
from fedsilo_operator.gateway.limits import RequestAccount
from fedsilo_operator.gateway.service import GatewayService

OPEN_REQUESTS = Series(
    "fedsilo_gateway_open_requests",
    "gauge",
    ("silo_namespace", "silo"),
    "Requests of a silo under way, long polls included.",
)
REFUSED_REQUESTS = Series(
    "fedsilo_gateway_refused_total", "counter", ("code",), "Refused requests by problem code."
)

DECLARED_SERIES = (OPEN_REQUESTS, REFUSED_REQUESTS, *requests.DECLARED_SERIES)


def exposition(
    service: GatewayService, admission: RequestAccount, counts: requests.RequestTotals
) -> Exposition:
    """The metrics that the gateway serves to monitors.

    :param counts: of its own requests to the API server.
    """

    def read() -> Iterator[Sample]:
        for silo, count in sorted(admission.open.items()):
            namespace, _, name = silo.partition("/")
            yield Sample(OPEN_REQUESTS, (namespace, name), count)
        for code, count in sorted(service.refused.items()):
            yield Sample(REFUSED_REQUESTS, (code,), count)
        yield from counts.read()

    return Exposition("gateway", DECLARED_SERIES, read)
