"""The state of a SiloAgent: what `assess` makes of an observation, and all that actions, conditions and status read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsilo.api.conditions import AgentPhase
from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.observed import Object
from fedsilo_operator.objects import Child, is_deleted
from fedsilo_operator.silo.admission import AdmissionDecision
from fedsilo_operator.workloads.agent import ParsedAgent
from fedsilo_operator.workloads.pod import is_suspended


@dataclass(frozen=True)
class ComponentState:
    """Guard or trainer.

    :param job: its Job; None where there is none.
    :param job_ended: whether the Job has ended by its own status; its last pod may not have yet.
    :param alive: whether a pod may still write to the volume.
    :param previous_pod: whether a pod of an earlier Job may.
    :param running: whether a pod runs or is done.
    :param outcome: how it ended; None until Job and pods have.
    :param diagnosis: what keeps it from running, where that is known.
    """

    name: str
    job: Object | None
    job_ended: bool
    alive: bool
    previous_pod: bool
    running: bool
    outcome: Outcome | None
    diagnosis: Diagnosis | None

    @property
    def waiting(self) -> bool:
        """Whether it has yet to run."""
        return self.outcome is None and not self.running

    @property
    def stopped(self) -> bool:
        """Whether its Job is suspended and its pods are gone."""
        return self.job is not None and is_suspended(self.job) and not self.alive

    def differs(self, suspend: bool) -> bool:
        """Whether its Job is to be suspended or resumed, and can be."""
        if self.job is None or is_deleted(self.job) or self.job_ended:
            return False
        return is_suspended(self.job) != suspend


@dataclass(frozen=True)
class AgentState:
    """The state of an agent, and what has to be done about it.

    :param agent: the SiloAgent as observed.
    :param phase: how far it is.
    :param message: what matters most about it.
    :param ready: why guard and trainer run, or what blocks them.
    :param outcome: how the silo's part ended; None while it has not.
    :param admission: the silo's decision; None once the end is recorded, which is never taken back.
    :param suspend: by component, whether its Job is to be suspended; a component that is missing stays as it is.
    :param children: those that exist, as far as any are to be made.
    :param children_from: what the missing ones are made from; None when none are to be made.
    :param policy: the ConfigMap of the present policy, where it says something else than the Silo.
    :param proposal: what the silo decides on, as its status has it.
    :param decision: what the silo decided, signed, as its status has it; None while it is not signed.
    :param unsigned: whether a decision has yet to be signed, with a key that was not given.
    :param configuration: fingerprint of the configuration with which guard and trainer began, or begin now.
    :param receipts: what has left the silo, as its guard said last; None while it has said nothing.
    :param ledger: what is spent of the dataset's budget, as its guard said last; None while it has said nothing.
    :param requeue_after: seconds after which to look again although nothing changed.
    """

    agent: Object
    trainer: ComponentState
    guard: ComponentState
    phase: AgentPhase
    message: str
    ready: Diagnosis
    outcome: Outcome | None = None
    admission: AdmissionDecision | None = None
    suspend: Mapping[str, bool] = field(default_factory=dict)
    children: frozenset[Child] = frozenset()
    children_from: ParsedAgent | None = None
    policy: Object | None = None
    proposal: Object | None = None
    decision: Object | None = None
    unsigned: bool = False
    configuration: str | None = None
    receipts: Object | None = None
    ledger: Object | None = None
    requeue_after: float | None = None
