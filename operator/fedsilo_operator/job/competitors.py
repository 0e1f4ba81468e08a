"""Other jobs that ask for the same silos, as far as their own status says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.observed import Object, holds, reference, status_of, uid_of
from fedsilo_operator.job.gang import Gang

Rank = tuple[int, str, str]
"""Place of a job among those that wait for the same silos: by priority, then age; the least goes first."""


@dataclass(frozen=True)
class Competitor:
    """A job under way.

    :param job: its namespace/name.
    :param asks: silos in which it has asked for its agents to run, whether they do or not.
    :param runs: silos in which its agents run.
    """

    job: str
    priority: int
    rank: Rank
    asks: frozenset[str]
    runs: frozenset[str]
    gang: Gang

    @classmethod
    def of(cls, job: Object) -> Competitor:
        """The job as it was observed."""
        gang = Gang.read(job)
        entries = [entry for entry in status_of(job).get("silos") or () if "namespace" in entry]
        wanted = not gang.put_off and not job["spec"].get("suspend", False)
        part = {
            f"{entry['namespace']}/{entry['name']}": entry.get("phase")
            for entry in entries
            if wanted and entry.get("phase") != AgentPhase.LEFT_OUT
        }
        return cls(
            reference(job),
            priority_of(job),
            rank_of(job),
            frozenset(part),
            frozenset(silo for silo, phase in part.items() if phase == AgentPhase.RUNNING),
            gang,
        )


def priority_of(job: Object) -> int:
    """The priority that a job states; 0 where it states none, or something else than a number."""
    priority = job["spec"].get("priority")
    return priority if isinstance(priority, int) else 0


def rank_of(job: Object) -> Rank:
    """The place of a job among those that wait: the highest priority goes first, then the oldest."""
    return -priority_of(job), str(job["metadata"].get("creationTimestamp") or ""), uid_of(job)


def competitors_of(job: Object, jobs: Iterable[Object]) -> tuple[Competitor, ...]:
    """Other jobs that have started and are not over, in their order."""
    found = [Competitor.of(other) for other in jobs if uid_of(other) != uid_of(job) and _is_under_way(other)]
    return tuple(sorted(found, key=lambda one: one.rank))


def _is_under_way(job: Object) -> bool:
    over = holds(job, ConditionType.COMPLETE) or holds(job, ConditionType.FAILED)
    return "startTime" in status_of(job) and not over


def ahead(rank: Rank, silos: frozenset[str], others: Iterable[Competitor]) -> Iterator[Competitor]:
    """Jobs that go first in silos that this one asks for: each frees them again after a while, if it cannot run.

    A job that tries and finds no room goes first. One that is put off lets others try, but for those of a lower
    priority than its own while it waits for jobs that it knows: it tries as soon as they are gone. Whether they are
    does not matter here, or a job that made room for it would at once take the room again.

    :param rank: the asking job's place.
    :param silos: that it asks for.
    """
    for other in others:
        if other.rank > rank or not other.gang.silos & silos:
            continue
        if not other.gang.put_off or (other.rank[0] < rank[0] and other.gang.competitors):
            yield other
