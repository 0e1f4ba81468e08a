"""Whether a silo admits its part in a job: the condition `Admitted`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.manifests.agent import SiloAgent
from fedsilo.manifests.silo import Silo
from fedsilo.manifests.words import faults_of
from fedsilo_operator.admission import Objection, admitted, objections
from fedsilo_operator.conditions import Condition
from fedsilo_operator.objects import Object, condition, silo_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.agent import Site, trainer_image

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Verdict:
    """What the silo says to the job.

    :param phase: that of an agent which it does not admit.
    :param site: what the children are made from; None unless the job is admitted.
    """

    condition: Condition
    phase: str = "Refused"
    site: Site | None = None


def decide(agent: Object, silo: Object | None, settings: Settings) -> Verdict:
    """The verdict on an agent, from its frozen job and the Silo as it is now."""
    where = silo_of(agent)
    if silo is None:
        remedy = "create it, or delete the job and create it again without this silo"
        text = f"Silo {where} does not exist; {remedy}."
        return Verdict(Condition("Admitted", "False", Reason.SILO_NOT_FOUND, text), "Pending")
    job, fault = _parsed(SiloAgent, agent)
    if job is None:
        return Verdict(Condition("Admitted", "False", Reason.MANIFEST_INVALID, fault))
    offer, fault = _parsed(Silo, silo)
    if offer is None:
        return Verdict(Condition("Admitted", "Unknown", Reason.SILO_NOT_READY, fault), "Pending")
    if offer.status.public_key is None:
        ready = condition(silo, "Ready") or {"message": "The operator is about to publish it."}
        text = f"Silo {where} has published no key, so nothing that it signs could be checked. {ready['message']}"
        return Verdict(Condition("Admitted", "Unknown", Reason.SILO_NOT_READY, text), "Pending")
    found = objections(job, offer, trainer_image(job, settings))
    if found:
        return _refusal(found)
    return Verdict(
        Condition("Admitted", "True", Reason.ADMITTED, admitted(job, offer)),
        phase="Admitted",
        site=Site(job, offer, agent),
    )


def _refusal(found: Sequence[Objection]) -> Verdict:
    waits = all(objection.reason == Reason.APPROVAL_PENDING for objection in found)
    message = " ".join(objection.message for objection in found)
    return Verdict(
        Condition("Admitted", "False", found[0].reason, message), "ApprovalPending" if waits else "Refused"
    )


def _parsed(model: type[Model], observed: Object) -> tuple[Model | None, str]:
    """The object in types; else all that this version of fedsilo does not understand of it."""
    try:
        return model.model_validate(observed), ""
    except ValidationError as error:
        document = f"{model.__name__} {observed['metadata']['name']}"
        faults = faults_of(error, model, file="", document=document)
        return None, " ".join(f"{fault.line()}." for fault in faults)
