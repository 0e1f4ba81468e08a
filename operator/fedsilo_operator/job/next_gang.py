"""Whether the agents of a job are asked to run, are given up for a while, or run: a function of status and time.

What counts as waiting for room, and against `spec.startDeadline`, is what pods wait for. A person's decision does not
count, nor a silo that is gone or not heard of; nor a queue, as long as no other agent of the job runs meanwhile and so
holds what it does not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.status import AwaitedAgent
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.job.competitors import Competitor, ahead, rank_of
from fedsilo_operator.job.gang import (
    MAX_AWAITED,
    MAX_COMPETITORS,
    MAX_MESSAGE_CHARACTERS,
    NO_GANG,
    Gang,
    pause,
)
from fedsilo_operator.job.participants import Participant
from fedsilo_operator.job.state import JobState
from fedsilo_operator.objects import JOB
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.suspension import is_suspended

LOOK_SECONDS = 10.0
"""How often a job that waits for room looks at the other jobs: it is woken by none of them."""

ROUND_SHARE = 0.5
"""Share of a round's time after which a job gives up agents that miss it: the rest is there when they are back, as no
time of a round passes while the aggregator is down."""

_ROOM_REASONS = frozenset({Reason.UNSCHEDULABLE, Reason.POD_REFUSED, Reason.SUSPENDED_BY})
"""Reasons of an agent for which there is no room."""

_POD_REASONS = _ROOM_REASONS | {
    *(Reason.IMAGE_NOT_FOUND, Reason.VOLUME_MISSING, Reason.CONFIG_MISSING, Reason.OUT_OF_MEMORY),
    *(Reason.EVICTED, Reason.NODE_LOST, Reason.RESTARTING, Reason.API_REFUSED, Reason.NAME_TAKEN),
}
"""Reasons of an agent whose pods do not run, whatever a person decides."""


def gang_of(state: JobState, others: Sequence[Competitor], now: datetime) -> Gang:
    """The job's gang as it is from now on."""
    if not state.started or state.suspended or state.job is None:
        return NO_GANG
    gang = _GangState.of(state, state.job, others, now)
    before = Gang.read(state.observed)
    if before.put_off:
        return gang.retry(before)
    if not state.has_started and gang.first_jobs:
        return gang.put_off(before)
    return gang.go_on(before)


def look_again_seconds(gang: Gang, now: datetime) -> float | None:
    """Seconds after which to look at the gang again; None where only a change of the agents matters."""
    until = gang.retry_time or gang.deadline
    if until is None or gang.sufficient:
        return None
    left = max(0.0, (until - now).total_seconds())
    return min(left, LOOK_SECONDS) if gang.put_off or gang.awaited else left


@dataclass(frozen=True)
class _GangState:
    """The agents of a job, and the jobs that they compete with.

    :param start: time in which all agents run.
    :param round_rest: time of a round that is left when agents which miss it are given up.
    :param waiting: agents that neither run nor have failed.
    :param running: how many do run.
    :param quorum: how many suffice for a round; None where all have to run.
    :param serves: whether the aggregator is up.
    :param first_jobs: jobs that go first.
    """

    observed: Object
    start: timedelta
    round_rest: timedelta
    waiting: tuple[Participant, ...]
    running: int
    quorum: int | None
    serves: bool
    others: tuple[Competitor, ...]
    first_jobs: tuple[Competitor, ...]
    now: datetime

    @classmethod
    def of(
        cls, state: JobState, job: FederatedJob, others: Sequence[Competitor], now: datetime
    ) -> _GangState:
        members = [silo for silo in state.participants if silo.failure is None]
        silos = frozenset(str(silo.ref) for silo in members)
        participation, batch = job.spec.participation, state.aggregator.children.get(JOB)
        some = participation.min_silos is not None and participation.fraction == 1
        first = ahead(rank_of(state.observed), silos, others)
        return cls(
            state.observed,
            timedelta(seconds=job.spec.start_seconds),
            timedelta(seconds=ROUND_SHARE * participation.round_deadline.seconds),
            tuple(silo for silo in members if silo.not_ready is not None),
            sum(silo.ready for silo in members),
            participation.quorum(len(state.participants)) if some else None,
            batch is not None and not is_suspended(batch),
            tuple(others),
            tuple(first),
            now,
        )

    @property
    def enough(self) -> bool:
        """Whether a round can be completed without the agents that are missing."""
        return self.quorum is not None and self.running >= self.quorum

    def retry(self, before: Gang) -> Gang:
        """A job that is put off tries again at its time, or as soon as those are gone that were in its way."""
        until = before.retry_time or self.now
        if self.now < until and (self.first_jobs or not self._is_free(before)):
            return before
        if self.first_jobs:
            return self.put_off(before)
        return Gang(before.attempt, deadline=self.now + self.start)

    def _is_free(self, before: Gang) -> bool:
        """Whether the jobs that were in its way no longer ask for what it waits for."""
        asked = {one.job: one.asks for one in self.others}
        held = any(asked.get(name, frozenset()) & before.silos for name in before.competitors)
        return bool(before.competitors) and not held

    def go_on(self, before: Gang) -> Gang:
        """A job whose agents are asked to run."""
        if not self.waiting or (self.enough and self.serves):
            return NO_GANG
        awaited = self._awaited_agents()
        lacks_quorum = not self.enough and any(found.reason == Reason.SUSPENDED_BY for found in awaited)
        if not any(self._counts(silo) for silo in self.waiting):
            return Gang(before.attempt, awaited=awaited, lacks_quorum=lacks_quorum)
        if awaited and self.first_jobs and not self.enough:
            return self.put_off(before, awaited)
        deadline = self._deadline(before, bool(awaited))
        if self.now < deadline:
            return Gang(before.attempt, deadline, awaited=awaited, lacks_quorum=lacks_quorum)
        if self.enough:
            return Gang(before.attempt, deadline, awaited=awaited, sufficient=True)
        return self.put_off(before, awaited or self._awaited_agents(_POD_REASONS | {Reason.STARTING}))

    def _deadline(self, before: Gang, crowded: bool) -> datetime:
        deadline = before.deadline or self.now + self.start
        round_end = status_of(self.observed).get("roundDeadline")
        if self.serves and crowded and round_end is not None:
            try:
                return min(deadline, parse_timestamp(str(round_end)) - self.round_rest)
            except (TypeError, ValueError):
                return deadline
        return deadline

    def put_off(self, before: Gang, awaited: tuple[AwaitedAgent, ...] = ()) -> Gang:
        """The job frees what it holds, and says what it waited for and who has it."""
        attempt, awaited = before.attempt + 1, awaited or before.awaited or self._of_first_jobs()
        silos = {found.silo for found in awaited}
        first = [one.job for one in self.first_jobs]
        running = [one.job for one in self.others if one.runs & silos and one.job not in first]
        until = self.now + pause(uid_of(self.observed), attempt)
        return Gang(
            attempt,
            retry_time=until.replace(microsecond=0),
            awaited=awaited,
            competitors=tuple([*first, *running][:MAX_COMPETITORS]),
        )

    def _of_first_jobs(self) -> tuple[AwaitedAgent, ...]:
        """What a job waits for that has not tried yet: the silos in which others go first."""
        silos = sorted({found.silo for one in self.first_jobs for found in one.gang.awaited})
        text = "other jobs go first there."
        return tuple(
            AwaitedAgent(silo=silo, reason=Reason.GANG_INCOMPLETE, message=text)
            for silo in silos[:MAX_AWAITED]
        )

    def _awaited_agents(self, reasons: frozenset[Reason] = _ROOM_REASONS) -> tuple[AwaitedAgent, ...]:
        found = [
            AwaitedAgent(
                silo=str(silo.ref), reason=known.reason, message=known.message[:MAX_MESSAGE_CHARACTERS]
            )
            for silo in self.waiting
            if (known := silo.not_ready) is not None and known.reason in reasons
        ]
        return tuple(found[:MAX_AWAITED])

    def _counts(self, silo: Participant) -> bool:
        """Whether what an agent waits for counts against the deadline."""
        if silo.not_ready is None or silo.unheard is not None:
            return False
        reason = silo.not_ready.reason
        if reason == Reason.SUSPENDED_BY:
            return self.running > 0
        return reason in _POD_REASONS or (reason == Reason.STARTING and not silo.remote)
