"""Whether a silo admits its part in a job, where agent and Silo are objects that others write."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from fedsilo.api.agent import SiloAgent
from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import condition
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.silo.agent.admission import AdmissionDecision, decide, read, unreadable_decision
from fedsilo.silo.agent.observation import Observation
from fedsilo_operator.objects import ref_of, silo_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo.budgets import spent_so_far
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.workloads.agent import GUARD, TRAINER, guard_image, trainer_image


def admission(
    seen: AgentObservation, anywhere: Observation, now: datetime, settings: SiloSettings
) -> AdmissionDecision:
    """The decision on an agent, which waits until agent and Silo are there, understood, and have a key."""
    where = silo_of(seen.agent)
    if seen.silo is None:
        remedy = "create it, or delete the job and create it again without this silo"
        text = f"Silo {where} does not exist; {remedy}."
        return AdmissionDecision("False", Diagnosis(Reason.SILO_NOT_FOUND, text))
    agent, fault = read(SiloAgent, seen.agent)
    silo, fault_of_silo = read(Silo, seen.silo)
    if agent is None or silo is None:
        return unreadable_decision(fault or fault_of_silo, anywhere, "of the operator")
    if silo.status.public_key is None:
        ready = condition(seen.silo, ConditionType.READY)
        why = "The operator is about to publish it." if ready is None else ready["message"]
        text = f"Silo {where} has published no key, so nothing that it signs could be checked. {why}"
        return AdmissionDecision("Unknown", Diagnosis(Reason.SILO_NOT_READY, text))
    proposal = propose(
        agent.spec,
        seen.image(TRAINER) or trainer_image(agent, settings),
        seen.image(GUARD) or guard_image(silo, settings),
    )
    spent = partial(spent_so_far, silo, agent.spec.job, seen.budgets, now)
    return decide(agent, silo, proposal, anywhere, _changed_message(seen), spent, now)


def _changed_message(seen: AgentObservation) -> str:
    """What is said where guard and trainer would read anything else than they began with.

    That must not change by an edited Silo, nor by whoever may make ConfigMaps.
    """
    where = f"Silo {silo_of(seen.agent).name}: ConfigMap {ref_of(seen.agent)}"
    if seen.files is not None:
        return f"{where} is not the one with which guard and trainer began. Delete it, and the operator makes it again."
    return (
        f"{where} is gone, and the Silo is not any more what guard and trainer began with. Undo its change, and the"
        " operator makes it again; or delete this SiloAgent, and the silo's part begins anew with the Silo as it is."
    )
