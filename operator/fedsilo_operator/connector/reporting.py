"""What the institution says of the SiloAgents that its hub has asked for, and of what it offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, status_of
from fedsilo.hub.client import HubAgent
from fedsilo.hub.reports import ReportQueue
from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.connector import mirrored
from fedsilo_operator.objects import Ref, is_deleted, ref_of


class ReportWriter:
    """Hands what there is to say to the reports; whether the hub has it is theirs to know."""

    def __init__(self, cache: Cache, silo: Ref, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._silo = silo
        self._now = now
        self._unmade: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def report(
        self, silo: Object, unmade: Mapping[str, tuple[HubAgent, Diagnosis]], reports: ReportQueue
    ) -> None:
        """Have the reports hold what is true now, and nothing of agents that are gone.

        :param unmade: agents that could not be made here, and why.
        """
        self._unmade = {
            name: self._unmade_status(name, agent, diagnosis) for name, (agent, diagnosis) in unmade.items()
        }
        here = mirrored.of_hub(self._cache, self._silo)
        for name, agent in here.items():
            status = status_of(agent)
            if status and not is_deleted(agent):
                reports.state(name, mirrored.hub_uid(agent), mirrored.disclosed_status(ref_of(agent), status))
        for name, (uid, status) in self._unmade.items():
            reports.state(name, uid, mirrored.disclosed_status(Ref(self._silo.namespace, name), status))
        for name in reports.agents() - here.keys() - self._unmade.keys():
            reports.forget(name)
        offer = status_of(silo).get("offer")
        if offer is not None:
            reports.publish(offer)

    def _unmade_status(
        self, name: str, agent: HubAgent, diagnosis: Diagnosis
    ) -> tuple[str, Mapping[str, Any]]:
        """Uid at the hub, and status; the same as before as long as it says the same."""
        before = self._unmade.get(name)
        if before is not None and (before[0], before[1]["message"]) == (agent.uid, diagnosis.message):
            return before
        return agent.uid, mirrored.unmade_status(diagnosis, self._now())
