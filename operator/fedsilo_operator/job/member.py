"""One silo of a job: what it says, and how far its agent is."""

from __future__ import annotations

from dataclasses import dataclass

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import condition, holds
from fedsilo_operator.objects import Object, Ref
from fedsilo_operator.reasons import Diagnosis, Reason


@dataclass(frozen=True)
class Member:
    """A silo of the job.

    :param public_key: None while the silo has published none.
    :param agent: None while there is none.
    :param exists: whether there is such a Silo now; without one no agent is made.
    :param hindrance: set where the operator may not make or change the agent, or does not trust it.
    """

    ref: Ref
    public_key: str | None = None
    agent: Object | None = None
    exists: bool = True
    hindrance: Diagnosis | None = None

    @property
    def trusted(self) -> bool:
        """Whether the agent, if there is one, says what the operator told it."""
        return self.hindrance is None or self.hindrance.reason != Reason.TRUST_BROKEN

    @property
    def admitted(self) -> bool:
        """Whether the silo takes part if the job starts."""
        return self.trusted and self.agent is not None and holds(self.agent, ConditionType.ADMITTED)

    @property
    def refusal(self) -> Diagnosis | None:
        """What the silo has against the job."""
        found = condition(self.agent, ConditionType.ADMITTED) if self.agent is not None else None
        return Diagnosis(found["reason"], found["message"]) if found and found["status"] == "False" else None

    @property
    def decided(self) -> bool:
        """Whether the silo's word stands unless somebody changes something; a person's may be awaited."""
        return self.trusted and self._has_spoken

    @property
    def _has_spoken(self) -> bool:
        return self.admitted or (self.refusal is not None and self.refusal.reason != Reason.APPROVAL_PENDING)

    @property
    def failed(self) -> str | None:
        """Why the agent has failed, if it has."""
        found = condition(self.agent, ConditionType.FAILED) if self.agent is not None else None
        return str(found["message"]) if found and found["status"] == "True" else None

    @property
    def gone(self) -> bool:
        """Whether its Silo is gone and its agent, there or not, still has work to do."""
        return not self.exists and not self.ready and self.failed is None

    @property
    def ready(self) -> bool:
        """Whether the agent runs, or has run to its end."""
        return self.hindrance is None and _runs_or_ran(self.agent)


def _runs_or_ran(agent: Object | None) -> bool:
    return agent is not None and (holds(agent, ConditionType.READY) or holds(agent, ConditionType.FINISHED))
