"""A SiloAgent and what the place in which its guard and trainer run knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.observed import Object, condition, holds
from fedsilo.silo.agent.component import ComponentState
from fedsilo.wire import SigningKey


@dataclass(frozen=True)
class Observation:
    """A SiloAgent that is not being deleted.

    :param agent: with the status as it was written last.
    :param run_as: what guard and trainer run as there: pods or processes.
    :param begun: whether there ever was more than a decision.
    :param files: what guard and trainer read; None while there is nothing.
    :param key: with which decisions are signed; None where it was not given.
    :param rejected: what the place refuses to have made, whatever the silo says.
    :param can_begin: whether guard and trainer can be made now.
    :param said: fields of the status that repeat what a guard has said last.
    """

    agent: Object
    trainer: ComponentState
    guard: ComponentState
    run_as: str
    begun: bool
    files: Mapping[str, str] | None = None
    key: SigningKey | None = None
    rejected: Diagnosis | None = None
    can_begin: bool = True
    said: Mapping[str, Object | None] = field(default_factory=dict)

    @property
    def suspended(self) -> bool:
        """Whether the job wants nothing to run."""
        return bool(self.agent["spec"].get("suspend", False))

    @property
    def recorded_outcome(self) -> Outcome | None:
        """The end that the agent's status has recorded, which is never taken back."""
        for end in (ConditionType.FINISHED, ConditionType.FAILED):
            found = condition(self.agent, end)
            if found is not None and holds(self.agent, end):
                why = Diagnosis(found["reason"], found.get("message", ""))
                return Outcome(end == ConditionType.FINISHED, why)
        return None
