"""What the dashboard of jobs shows: objects as an API server gives them, wherever they come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

from fedsilo.api.observed import Object, uid_of


class PageSnapshot(Protocol):
    """Everything that the pages of a server are computed from, at one moment."""

    @property
    def namespaces(self) -> Collection[str]:
        """Namespaces of the objects that the snapshot contains."""

    def filter_namespaces(self, namespaces: Collection[str]) -> Self:
        """What of it is in these namespaces."""


class Receipt(NamedTuple):
    """An update that the aggregator accepted.

    :param digest: SHA-256 of its header and signature; the silo's audit log has the same.
    """

    round: int
    phase: str
    silo: str
    digest: str


@dataclass(frozen=True)
class JobsSnapshot:
    """Everything that a page is computed from.

    :param place: where the jobs run; on one machine the directories of all roles can be read.
    :param jobs: FederatedJobs.
    :param agents: SiloAgents of those jobs, where there are any.
    :param events: core/v1 Events about jobs and agents.
    :param receipts: uid of a job -> its receipts, where the aggregator's directory can be read.
    """

    place: Literal["cluster", "machine"]
    jobs: Sequence[Object] = ()
    agents: Sequence[Object] = ()
    events: Sequence[Object] = ()
    receipts: Mapping[str, Sequence[Receipt]] = field(default_factory=dict)

    @property
    def namespaces(self) -> Collection[str]:
        """Namespaces of the jobs in the snapshot."""
        return {job["metadata"]["namespace"] for job in self.jobs}

    def filter_namespaces(self, namespaces: Collection[str]) -> JobsSnapshot:
        """The jobs of these namespaces, and what belongs to them."""
        jobs = [job for job in self.jobs if job["metadata"]["namespace"] in namespaces]
        return self.of(jobs)

    def job(self, namespace: str, name: str) -> JobsSnapshot:
        """One job, or none, and what belongs to it."""
        place = (namespace, name)
        return self.of(
            [job for job in self.jobs if (job["metadata"]["namespace"], job["metadata"]["name"]) == place]
        )

    def of(self, jobs: Sequence[Object]) -> JobsSnapshot:
        """These jobs and what belongs to them."""
        uids = {uid_of(job) for job in jobs}
        agents = [agent for agent in self.agents if agent["spec"]["job"]["uid"] in uids]
        known = uids | {uid_of(agent) for agent in agents}
        events = [event for event in self.events if event["involvedObject"].get("uid") in known]
        return JobsSnapshot(
            self.place, jobs, agents, events, {uid: self.receipts[uid] for uid in uids & self.receipts.keys()}
        )
