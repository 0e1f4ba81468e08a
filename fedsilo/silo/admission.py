"""What a silo says to its part in a job, wherever it runs: a pure function of agent, Silo and proposal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.agent import Proposal, SiloAgent
from fedsilo.api.proposal import decision_on
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import Approval
from fedsilo.silo.objections import Objection, admission_note, objections


@dataclass(frozen=True)
class Admission:
    """What the silo's policy and its people say to a proposal.

    :param objections: the gravest first; none when the silo admits the job.
    :param note: what holds for a job that is admitted.
    :param approval: what a person decided, if somebody did.
    """

    silo: str
    proposal: Proposal
    objections: tuple[Objection, ...] = ()
    note: str = ""
    approval: Approval | None = None


def evaluate(agent: SiloAgent, silo: Silo, proposal: Proposal, now: datetime, has_begun: bool) -> Admission:
    """What the silo, as it is now, says to a proposal.

    :param has_begun: whether guard and trainer of this very agent were made before.
    """
    found = tuple(objections(agent, silo, proposal, now, has_begun))
    note = "" if found else admission_note(agent, silo)
    approval = decision_on(silo.spec.policy.approvals, proposal, has_begun)
    return Admission(str(silo), proposal, found, note, approval)
