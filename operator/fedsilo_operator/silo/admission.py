"""Whether a silo admits its part in a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.api.agent import Proposal, SiloAgent
from fedsilo.api.conditions import AgentPhase, ConditionType, ObjectionReason
from fedsilo.api.diagnosis import Diagnosis, Status
from fedsilo.api.messages import faults_of
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.process import version
from fedsilo.silo.admission import Ruling, rule
from fedsilo.silo.configuration import fingerprint
from fedsilo.silo.objections import Objection
from fedsilo.silo.policy import over_budget
from fedsilo_operator.objects import silo_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo.budgets import spent_so_far
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.workloads.agent import (
    GUARD,
    TRAINER,
    ParsedAgent,
    config_map,
    guard_image,
    trainer_image,
)

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class AdmissionDecision:
    """What the silo decided about the job.

    :param status: of the condition `Admitted`.
    :param phase: of an agent that does not run because of it.
    :param parsed: what the children are made from; None unless the job is admitted.
    :param ruling: what the silo says to which proposal; None where that cannot be read.
    :param present: agent and Silo as they are now, whatever was decided; None where either cannot be read.
    :param unreadable: whether this version of the operator cannot read it, so that pods of another stay as they are.
    """

    status: Status
    diagnosis: Diagnosis
    phase: AgentPhase = AgentPhase.REFUSED
    parsed: ParsedAgent | None = None
    ruling: Ruling | None = None
    present: ParsedAgent | None = None
    unreadable: bool = False

    @property
    def admitted(self) -> bool:
        """Whether the silo admits the job now; it may change its mind."""
        return self.parsed is not None

    @property
    def proposal(self) -> Proposal | None:
        """What the silo decided on, or has yet to decide on."""
        return None if self.ruling is None else self.ruling.proposal


def decide(seen: AgentObservation, now: datetime, settings: SiloSettings) -> AdmissionDecision:
    """The decision on an agent, from its frozen job and the Silo as it is now."""
    agent, silo, where = seen.agent, seen.silo, silo_of(seen.agent)
    # Silo and agent have to be there and understood.
    if silo is None:
        remedy = "create it, or delete the job and create it again without this silo"
        text = f"Silo {where} does not exist; {remedy}."
        return _pending("False", Reason.SILO_NOT_FOUND, text)
    typed_agent, fault = _parse(SiloAgent, agent)
    if typed_agent is None:
        return _unreadable(fault)
    typed_silo, fault = _parse(Silo, silo)
    if typed_silo is None:
        return _unreadable(fault)
    # Without a published key, nothing that the silo signs could be checked.
    if typed_silo.status.public_key is None:
        ready = condition(silo, ConditionType.READY) or {"message": "The operator is about to publish it."}
        text = f"Silo {where} has published no key, so nothing that it signs could be checked. {ready['message']}"
        return _pending("Unknown", Reason.SILO_NOT_READY, text)
    # The policy, and what else the silo objects to.
    proposal = propose(
        typed_agent.spec,
        seen.image(TRAINER) or trainer_image(typed_agent, settings),
        seen.image(GUARD) or guard_image(typed_silo, settings),
    )
    parsed = ParsedAgent(typed_agent, typed_silo, agent)
    ruling = rule(typed_agent, typed_silo, proposal, now, "configuration" in status_of(agent))
    if ruling.objections:
        return _refused(ruling, parsed)
    # What a job may spend is asked before it begins: after that the ledger counts what it does.
    if "configuration" not in status_of(agent):
        job = typed_agent.spec.job
        full = over_budget(typed_silo, job, spent_so_far(typed_silo, job, seen.budgets, now))
        if full is not None:
            text = f"Silo {typed_silo.metadata.name}: {full}."
            return _refused(
                replace(ruling, objections=(Objection(ObjectionReason.POLICY_REFUSED, text),)), parsed
            )
    # Guard and trainer must read what they began with.
    if (changed := _changed_configuration(seen, parsed)) is not None:
        broken = replace(ruling, objections=(Objection(ObjectionReason.TRUST_BROKEN, changed),))
        return _refused(broken, parsed)
    note = Diagnosis(Reason.ADMITTED, ruling.note)
    return AdmissionDecision("True", note, AgentPhase.ADMITTED, parsed, ruling, parsed)


def _pending(status: Status, reason: Reason, text: str) -> AdmissionDecision:
    return AdmissionDecision(status, Diagnosis(reason, text), AgentPhase.PENDING)


def _unreadable(fault: str) -> AdmissionDecision:
    text = (
        f"{version()} of the operator cannot read it: {fault} Correct it if it is wrong; if it was made for another"
        " version, run that one. Pods that run go on as they are."
    )
    found = Diagnosis(Reason.UNREADABLE, text)
    return AdmissionDecision("Unknown", found, AgentPhase.PENDING, unreadable=True)


def _refused(ruling: Ruling, present: ParsedAgent) -> AdmissionDecision:
    found = ruling.objections
    waits = all(objection.reason == ObjectionReason.APPROVAL_PENDING for objection in found)
    message = " ".join(objection.message for objection in found)
    phase = AgentPhase.APPROVAL_PENDING if waits else AgentPhase.REFUSED
    return AdmissionDecision(
        "False", Diagnosis(Reason(found[0].reason), message), phase, ruling=ruling, present=present
    )


def _changed_configuration(seen: AgentObservation, parsed: ParsedAgent) -> str | None:
    """What is wrong when guard and trainer would read anything else than they began with.

    What a guard checks must not change under it, neither by an edited Silo nor by whoever may make ConfigMaps.
    """
    began = status_of(seen.agent).get("configuration")
    observed = seen.configuration
    if began is None or began == fingerprint((observed or config_map(parsed))["data"]):
        return None
    where = f"Silo {parsed.silo.metadata.name}: ConfigMap {parsed.ref}"
    if observed is not None:
        return f"{where} is not the one with which guard and trainer began. Delete it, and the operator makes it again."
    return (
        f"{where} is gone, and the Silo is not any more what guard and trainer began with. Undo its change, and the"
        " operator makes it again; or delete this SiloAgent, and the silo's part begins anew with the Silo as it is."
    )


def _parse(model: type[Model], observed: Object) -> tuple[Model | None, str]:
    """The object in types; else all that this version of fedsilo does not understand of it."""
    try:
        return model.model_validate(observed), ""
    except ValidationError as error:
        document = f"{model.__name__} {observed['metadata']['name']}"
        faults = faults_of(error, model, file="", document=document)
        return None, " ".join(f"{fault.line()}." for fault in faults)
