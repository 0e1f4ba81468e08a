"""How the gateway writes: parts of statuses, each under a field manager of its own.

What one request writes so never takes back what another wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.objects import Kind

MANAGER = "fedsilo-gateway"
"""Field manager of what institutions report about SiloAgents; those of a Silo's status have a suffix each."""


async def write_status(
    cluster: Cluster,
    kind: Kind,
    obj: Object,
    status: Mapping[str, Any],
    manager: str,
    *,
    whatever_else: bool = False,
) -> None:
    """Apply a part of a status, to the very version that was observed unless that does not matter.

    :raises ClusterError: `Conflict` where it is another version by now.
    """
    metadata = {"name": obj["metadata"]["name"], "namespace": obj["metadata"]["namespace"]}
    if not whatever_else:
        metadata["resourceVersion"] = obj["metadata"]["resourceVersion"]
    wanted = {"apiVersion": kind.api, "kind": kind.name, "metadata": metadata, "status": dict(status)}
    await cluster.apply(wanted, manager=manager, status=True)
