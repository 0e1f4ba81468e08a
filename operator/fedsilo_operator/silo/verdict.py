"""Whether a silo admits its part in a job: the condition `Admitted`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.api.agent import SiloAgent
from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.observed import condition, status_of
from fedsilo.api.silo import Silo
from fedsilo.api.words import faults_of
from fedsilo.process import version
from fedsilo_operator.admission import admitted, objections
from fedsilo_operator.conditions import Condition
from fedsilo_operator.objects import Object, silo_of
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.workloads.agent import Site, config_map, fingerprint, trainer_image

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Verdict:
    """What the silo says to the job.

    :param phase: that of an agent which it does not admit.
    :param site: what the children are made from; None unless the job is admitted.
    :param unknown: whether this version of the operator cannot tell, so that pods of another stay as they are.
    """

    condition: Condition
    phase: AgentPhase = AgentPhase.REFUSED
    site: Site | None = None
    unknown: bool = False


def decide(seen: AgentObservation, settings: Settings) -> Verdict:
    """The verdict on an agent, from its frozen job and the Silo as it is now."""
    agent, silo, where = seen.agent, seen.silo, silo_of(seen.agent)
    if silo is None:
        remedy = "create it, or delete the job and create it again without this silo"
        text = f"Silo {where} does not exist; {remedy}."
        return Verdict(
            Condition(ConditionType.ADMITTED, "False", Reason.SILO_NOT_FOUND, text), AgentPhase.PENDING
        )
    job, fault = _parsed(SiloAgent, agent)
    if job is None:
        return _unknown(fault)
    offer, fault = _parsed(Silo, silo)
    if offer is None:
        return _unknown(fault)
    if offer.status.public_key is None:
        ready = condition(silo, ConditionType.READY) or {"message": "The operator is about to publish it."}
        text = f"Silo {where} has published no key, so nothing that it signs could be checked. {ready['message']}"
        return Verdict(
            Condition(ConditionType.ADMITTED, "Unknown", Reason.SILO_NOT_READY, text), AgentPhase.PENDING
        )
    found = objections(job, offer, seen.trainer_image or trainer_image(job, settings))
    if found:
        return _refusal(found)
    site = Site(job, offer, agent)
    if (changed := _changed(seen, site)) is not None:
        return Verdict(Condition(ConditionType.ADMITTED, "False", Reason.TRUST_BROKEN, changed))
    return Verdict(
        Condition(ConditionType.ADMITTED, "True", Reason.ADMITTED, admitted(job, offer)),
        phase=AgentPhase.ADMITTED,
        site=site,
    )


def _unknown(fault: str) -> Verdict:
    text = (
        f"{version()} of the operator cannot read it: {fault} Correct it if it is wrong; if it was made for another"
        " version, run that one. Pods that run go on as they are."
    )
    return Verdict(
        Condition(ConditionType.ADMITTED, "Unknown", Reason.UNREADABLE, text),
        AgentPhase.PENDING,
        unknown=True,
    )


def _changed(seen: AgentObservation, site: Site) -> str | None:
    """What is wrong when guard and trainer would read something else than they began with.

    What a guard checks must not change under it, neither by an edited Silo nor by whoever may make ConfigMaps.
    """
    began = status_of(seen.agent).get("configuration")
    have = seen.configuration
    if began in (None, fingerprint(have or config_map(site))):
        return None
    where = f"Silo {site.silo.metadata.name}: ConfigMap {site.ref}"
    if have is not None:
        return f"{where} is not the one with which guard and trainer began. Delete it, and the operator makes it again."
    return (
        f"{where} is gone, and the Silo is not any more what guard and trainer began with. Undo its change, and the"
        " operator makes it again; or delete this SiloAgent, and the silo's part begins anew with the Silo as it is."
    )


def _refusal(found: Sequence[Diagnosis]) -> Verdict:
    waits = all(objection.reason == Reason.APPROVAL_PENDING for objection in found)
    message = " ".join(objection.message for objection in found)
    return Verdict(
        Condition(ConditionType.ADMITTED, "False", found[0].reason, message),
        AgentPhase.APPROVAL_PENDING if waits else AgentPhase.REFUSED,
    )


def _parsed(model: type[Model], observed: Object) -> tuple[Model | None, str]:
    """The object in types; else all that this version of fedsilo does not understand of it."""
    try:
        return model.model_validate(observed), ""
    except ValidationError as error:
        document = f"{model.__name__} {observed['metadata']['name']}"
        faults = faults_of(error, model, file="", document=document)
        return None, " ".join(f"{fault.line()}." for fault in faults)
