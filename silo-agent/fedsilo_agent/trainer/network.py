"""Seeing for itself that the cluster has closed the trainer's network, before any job code runs.

Rules that follow from a NetworkPolicy reach a new pod a moment after its first process has started; on a cluster
whose network plug-in knows no policies they never do. Either way code of the job could connect.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from fedsilo.errors import PolicyRefused
from fedsilo.manifests.agent import TrustBundle

Place = tuple[str, int]
"""Address and port."""

CLOSED = "no network: closed by the cluster"
"""What the trainer says of its isolation then."""

PATIENCE = 60.0
"""Seconds that the cluster gets to close the network."""

QUIET = 4
"""Looks in a row at which nothing could be reached."""

PAUSE = 0.3
"""Seconds between looks."""

TIMEOUT = 0.5
"""Seconds for one connection: policies drop packets, so silence is the answer that is hoped for."""


def tempting_places(trust: TrustBundle, environment: Mapping[str, str] = os.environ) -> list[Place]:
    """What a pod could reach in an open network: the API server, of which every pod is told, and the aggregator."""
    places = []
    if host := environment.get("KUBERNETES_SERVICE_HOST"):
        places.append((host, int(environment.get("KUBERNETES_SERVICE_PORT", "443"))))
    if trust.address is not None:
        places.append((trust.address, urlsplit(trust.url).port or 443))
    return places


def await_closed(
    places: Sequence[Place],
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when none of the places has answered for a while.

    :raises PolicyRefused: when one still answers after `patience` seconds, or there is none to try.
    """
    if not places:
        raise PolicyRefused(
            "trainer: neither the API server's address nor the aggregator's is known, so nothing shows that the "
            "network is closed; run it on a cluster, or locally with --isolate"
        )
    end, quiet = clock() + patience, 0
    while quiet < QUIET:
        open_place = next((place for place in places if _answers(place)), None)
        if open_place is not None and clock() > end:
            host, port = open_place
            raise PolicyRefused(
                f"trainer: {host}:{port} can be reached {patience:.0f} s after the start although a NetworkPolicy "
                "forbids it: this cluster's network plug-in does not enforce policies; install one that does, since "
                "job code must not run next to data with a network"
            )
        quiet = 0 if open_place else quiet + 1
        sleep(PAUSE)


def _answers(place: Place) -> bool:
    try:
        socket.create_connection(place, timeout=TIMEOUT).close()
    except OSError:  # dropped, or rejected as some plug-ins do
        return False
    return True
