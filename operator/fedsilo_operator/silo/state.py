"""The state of a SiloAgent on a cluster: what `assess` makes of it, and all that actions and status read."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsilo.api.observed import Object
from fedsilo.silo.agent.assess import Assessment
from fedsilo.silo.agent.component import ComponentState
from fedsilo_operator.objects import Child
from fedsilo_operator.workloads.agent import ParsedAgent
from fedsilo_operator.workloads.suspension import is_waiting


@dataclass(frozen=True)
class ComponentJob(ComponentState):
    """Guard or trainer, and its Job.

    :param job: None where there is none.
    :param ended: whether the Job has ended by its own status; its last pod may not have yet.
    :param previous_pod: whether a pod of an earlier Job may still write to the volume.
    :param patience_seconds: time after which to look whether something else still keeps its pod from running.
    """

    job: Object | None = None
    ended: bool = False
    previous_pod: bool = False
    patience_seconds: float | None = field(default=None, compare=False)

    @property
    def queued(self) -> bool:
        """Whether it waits until another resumes its Job."""
        return not self.ended and is_waiting(self.job)


@dataclass(frozen=True)
class AgentState:
    """The state of an agent, and what has to be done about it.

    :param agent: the SiloAgent as observed.
    :param found: how far it is, and what is to run.
    :param children: those that exist, as far as any are to be made.
    :param children_from: what the missing ones are made from; None when none are to be made.
    :param policy: the ConfigMap of the present policy, where it says something else than the Silo.
    :param requeue_after: seconds after which to look again although nothing changed.
    """

    agent: Object
    found: Assessment
    trainer: ComponentJob
    guard: ComponentJob
    children: frozenset[Child]
    children_from: ParsedAgent | None
    policy: Object | None
    requeue_after: float | None
