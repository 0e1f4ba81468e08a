"""A silo's part in a job on a machine: what its record, Silo and processes are to the state machine of SiloAgents.

The hub and its commands need not know in which kind of place a silo is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.agent import SiloAgent
from fedsilo.api.observed import Object, status_of
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.silo.agent.admission import decide, read, unreadable_decision
from fedsilo.silo.agent.assess import assess as assess_anywhere
from fedsilo.silo.agent.component import GUARD, TRAINER, ComponentState
from fedsilo.silo.agent.observation import Observation
from fedsilo.silo.budget_figures import SpentBudget, SpentOf
from fedsilo.silo.installed import installed_image
from fedsilo.wire import SigningKey


@dataclass(frozen=True)
class PartState:
    """What a silo says and does about its part in a job.

    :param agent: what guard and trainer are made from; None unless they are to run.
    :param wanted: which of guard and trainer are to run.
    :param status: as it is kept on file.
    :param faults: of the silo's own configuration, which the hub is not told.
    """

    agent: SiloAgent | None
    wanted: frozenset[str]
    status: Object
    faults: tuple[str, ...] = ()


def assess(
    record: Object,
    silo: Silo,
    processes: Mapping[str, ComponentState],
    files: Mapping[str, str] | None,
    key: SigningKey,
    now: datetime,
    spent: SpentOf = lambda _: SpentBudget(),
) -> PartState:
    """The state of a part that the hub still asks for.

    :param record: the SiloAgent as the hub said it, with the status as it was stated last.
    :param silo: as it is now, with the key that it has published.
    :param files: the configuration with which guard and trainer began, as it is on the disk; None while there is none.
    :param key: what decisions are signed with.
    :param spent: dataset -> what is spent of its budget; asked for a dataset that has one.
    """
    seen = Observation(
        agent=record,
        trainer=processes[TRAINER],
        guard=processes[GUARD],
        run_as="processes",
        begun=files is not None or "configuration" in status_of(record),
        files=files,
        key=key,
    )
    agent, fault = read(SiloAgent, {name: record[name] for name in ("metadata", "spec")})
    if seen.recorded_outcome is not None:
        decided = None
    elif agent is None:
        decided = unreadable_decision(fault, seen, "in the institution")
    else:
        job, image = agent.spec.job, installed_image()
        changed = (
            f"Silo {silo.metadata.name}: the configuration in the volume of job {job.uid} is not the one with which "
            "guard and trainer began. Put it back from a backup, or ask for the job to be created again."
        )
        proposal = propose(agent.spec, image, image)
        decided = decide(agent, silo, proposal, seen, changed, lambda: spent(job.spec.data.dataset), now)
    found = assess_anywhere(seen, decided, now)
    # What is not understood does not start, nor what has ended and would be told something else than it began with.
    may_start = agent is not None and (decided is not None or files is not None)
    wanted = frozenset(
        name
        for name, state in processes.items()
        if found.run.get(name, state.alive) and state.outcome is None and (state.alive or may_start)
    )
    objections = () if decided is None or decided.ruling is None else decided.ruling.objections
    faults = tuple(fault for objection in objections for fault in objection.faults)
    return PartState(agent if wanted else None, wanted, found.status(record, now), faults)
