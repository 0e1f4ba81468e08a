"""Having in the institution's own cluster what the hub has: SiloAgents are made, suspended, resumed and deleted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, uid_of
from fedsilo.hub.client import HubAgent
from fedsilo.hub.mirror import Mirror
from fedsilo_operator.cluster.interface import Cache, CallRefused, Cluster, ClusterError
from fedsilo_operator.connector import mirrored
from fedsilo_operator.objects import SILO_AGENT, Ref, is_deleted, ref_of
from fedsilo_operator.reasons import Reason

log = logging.getLogger("fedsilo.connector")

Write = Callable[[], Awaitable[object]]


@dataclass
class SyncResult:
    """What came of it.

    :ivar unmade: agents of the hub that are not here, and why.
    :ivar failed: the first write that may succeed later, or else the first that was refused.
    """

    unmade: dict[str, tuple[HubAgent, Diagnosis]] = field(default_factory=dict)
    failed: ClusterError | None = None


async def sync_agents(cluster: Cluster, cache: Cache, silo: Ref, mirror: Mirror, hub_url: str) -> SyncResult:
    """Do all that can be done now; one agent that cannot be made holds up no other.

    :param hub_url: URL of the hub, which is where the guards of its jobs connect.
    """
    here = mirrored.of_hub(cache, silo)
    brought = SyncResult()
    wanted = mirror.wanted_agents()
    for name, write in _writes(cluster, cache, here, mirror, brought, hub_url):
        try:
            await write()
        except CallRefused as error:
            log.error("SiloAgent %s: the API server refused: %s", name, error)
            if name in wanted and name not in here:
                brought.unmade[name] = wanted[name], Diagnosis(Reason.API_REFUSED, str(error))
            brought.failed = brought.failed or error
        except ClusterError as error:
            if brought.failed is None or isinstance(brought.failed, CallRefused):
                brought.failed = error
    return brought


def _writes(
    cluster: Cluster,
    cache: Cache,
    here: Mapping[str, Object],
    mirror: Mirror,
    brought: SyncResult,
    hub_url: str,
) -> Iterator[tuple[str, Write]]:
    steps = mirror.steps({name: mirrored.local(agent) for name, agent in here.items()})
    for name in steps.end:
        if not is_deleted(here[name]):
            yield name, partial(cluster.delete, SILO_AGENT, ref_of(here[name]), uid=uid_of(here[name]))
    for name, suspend in steps.suspend.items():
        body = mirrored.agent_with_suspend(here[name], suspend)
        yield name, partial(cluster.apply, body, manager=mirrored.MANAGER)
    for agent in steps.begin:
        if agent.name in here:
            continue  # the other has yet to go, and a watch reports when it has
        if (found := _unfit_diagnosis(cache, agent, hub_url)) is not None:
            brought.unmade[agent.name] = agent, found
        else:
            yield agent.name, partial(cluster.apply, mirrored.new_agent(agent), manager=mirrored.MANAGER)


def _unfit_diagnosis(cache: Cache, agent: HubAgent, hub_url: str) -> Diagnosis | None:
    """Why an agent is not made here."""
    if (wrong := mirrored.fault_of(agent, hub_url)) is not None:
        return Diagnosis(Reason.MANIFEST_INVALID, wrong)
    namespace = agent.spec["silo"]["namespace"]
    if cache.get(SILO_AGENT, Ref(namespace, agent.name)) is not None:
        return mirrored.name_taken_diagnosis(agent.name)
    return None
