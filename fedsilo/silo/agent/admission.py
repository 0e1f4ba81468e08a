"""Whether a silo admits its part in a job, as it is now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.api.agent import Proposal, SiloAgent
from fedsilo.api.conditions import UNREADABLE_REASON, AgentPhase, AgentReason, ObjectionReason
from fedsilo.api.diagnosis import Diagnosis, Status
from fedsilo.api.messages import faults_of
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo import Silo
from fedsilo.process import version
from fedsilo.silo.admission import Admission, evaluate
from fedsilo.silo.agent.observation import Observation
from fedsilo.silo.budget_figures import SpentBudget
from fedsilo.silo.configuration import configuration, fingerprint
from fedsilo.silo.objections import Objection
from fedsilo.silo.policy import over_budget

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class AdmissionDecision:
    """What the silo decided about the job.

    :param status: of the condition `Admitted`.
    :param phase: of an agent that does not run because of it.
    :param agent: as it is now, whatever was decided; None where agent or Silo cannot be read.
    :param silo: as it is now, whatever was decided; None where agent or Silo cannot be read.
    :param ruling: what the silo says to which proposal; None where that cannot be read.
    :param unreadable: whether this version cannot read it, so that what another has started stays as it is.
    """

    status: Status
    diagnosis: Diagnosis
    phase: AgentPhase = AgentPhase.PENDING
    agent: SiloAgent | None = None
    silo: Silo | None = None
    ruling: Admission | None = None
    unreadable: bool = False

    @property
    def admitted(self) -> bool:
        """Whether the silo admits the job now; it may change its mind."""
        return self.status == "True"


def decide(
    agent: SiloAgent,
    silo: Silo,
    proposal: Proposal,
    seen: Observation,
    changed: str,
    spent: Callable[[], SpentBudget],
    now: datetime,
) -> AdmissionDecision:
    """The decision on an agent, from its frozen job and the Silo as it is now.

    :param changed: a sentence for when guard and trainer would read anything else than they began with.
    :param spent: what is spent of the budget of the job's dataset; asked where there is one and the job has yet to
        begin: after that the ledger counts what it does.
    """
    began: str | None = status_of(seen.agent).get("configuration")
    ruling = evaluate(agent, silo, proposal, now, began is not None)
    found = ruling.objections
    if not found and began is None:
        found = _without_room(agent, silo, spent)
    elif not found and began != fingerprint(seen.files or configuration(agent, silo)):
        # What a guard checks must not change under it.
        found = (Objection(ObjectionReason.TRUST_BROKEN, changed),)
    ruling = replace(ruling, objections=found)
    if not found:
        note = Diagnosis(AgentReason.ADMITTED, ruling.note)
        return AdmissionDecision("True", note, AgentPhase.ADMITTED, agent, silo, ruling)
    waits = all(one.reason == ObjectionReason.APPROVAL_PENDING for one in found)
    phase = AgentPhase.APPROVAL_PENDING if waits else AgentPhase.REFUSED
    refusal = Diagnosis(found[0].reason, " ".join(one.message for one in found))
    return AdmissionDecision("False", refusal, phase, agent, silo, ruling)


def _without_room(agent: SiloAgent, silo: Silo, spent: Callable[[], SpentBudget]) -> tuple[Objection, ...]:
    """What is said of a job that wants more of a budget than there is left."""
    if silo.spec.policy.budget_of(agent.spec.job.spec.data.dataset) is None:
        return ()
    text = over_budget(silo, agent.spec.job, spent())
    full = Objection(ObjectionReason.POLICY_REFUSED, f"Silo {silo.metadata.name}: {text}.")
    return () if text is None else (full,)


def unreadable_decision(fault: str, seen: Observation, reader: str) -> AdmissionDecision:
    """No decision, since this version does not understand agent or Silo.

    :param reader: where this version is.
    """
    text = (
        f"{version()} {reader} cannot read it: {fault} Correct it if it is wrong; if it was made for another"
        f" version, run that one. {seen.run_as.capitalize()} that run go on as they are."
    )
    return AdmissionDecision("Unknown", Diagnosis(UNREADABLE_REASON, text), unreadable=True)


def read(model: type[Model], observed: Object) -> tuple[Model | None, str]:
    """The object in types; else all that this version of fedsilo does not understand of it."""
    try:
        return model.model_validate(observed), ""
    except ValidationError as error:
        document = f"{model.__name__} {observed['metadata']['name']}"
        faults = faults_of(error, model, file="", document=document)
        return None, " ".join(f"{fault.line()}." for fault in faults)
