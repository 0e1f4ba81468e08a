"""Whether an offer and an admission are the silo's own word, and the admission about what this operator asked of it.

Whoever may write the status of a SiloAgent could admit a job in the silo's name. So before the start an admission
counts only with a decision that the silo's published key has signed, about the very proposal that follows from what the
operator wrote into the agent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fedsilo.api.agent import Decision
from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.digest import canonical_digest, spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, condition, status_of, uid_of
from fedsilo.api.proposal import authority_digest, members_digest
from fedsilo.api.silo_status import Offer
from fedsilo.errors import Problem
from fedsilo.silo.decision import read_decision
from fedsilo.silo.enrolment import registered_keys
from fedsilo.silo.offer import read_offer
from fedsilo_operator.institution import remote_of
from fedsilo_operator.job.gateway import gateway_of, via_gateway
from fedsilo_operator.job.trust import Trust, bundle
from fedsilo_operator.objects import ref_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import Settings

_CHOSEN_BY_SILO = ("trainerImage", "guardImage")
"""Fields of a proposal that the silo's side fills in; the others follow from the agent."""


@dataclass(frozen=True)
class ExpectedProposal:
    """What the silos of a job are asked, with the fields of a proposal as a status has them.

    :param fields: those that are the same in every silo.
    :param bundle: the trust bundle of a silo that reaches the aggregator itself.
    :param open: fields in which anything is an answer.
    """

    fields: Mapping[str, str]
    bundle: Mapping[str, str]
    open: tuple[str, ...] = _CHOSEN_BY_SILO

    @classmethod
    def of(cls, trust: Trust, observed: Object, job: FederatedJob, settings: Settings) -> ExpectedProposal:
        """The question of a job whose agents are made.

        :param observed: the job as observed.
        """
        given = bundle(trust, observed, job, settings)
        job_ref = ref_of(observed)
        fields = {
            "namespace": job_ref.namespace,
            "name": job_ref.name,
            "uid": uid_of(observed),
            "specDigest": spec_digest(job),
            "taskKey": given["taskKey"],
        }
        if trust.members is None:
            return cls(fields, given, (*_CHOSEN_BY_SILO, "members"))
        if trust.members:
            fields["members"] = str(members_digest(trust.members))
        return cls(fields, given)

    def differences(self, proposal: Mapping[str, object], silo: Object) -> list[str]:
        """Fields in which a proposal is not what this silo was asked."""
        gateway = gateway_of(silo)
        way = self.bundle if gateway is None else via_gateway(gateway, self.bundle)
        asked = {
            **self.fields,
            "url": way["url"],
            "address": way.get("address"),
            "authority": authority_digest(way.get("caCertificate")),
        }
        found = {name: value for name, value in proposal.items() if name not in self.open}
        return sorted(name for name in {*found, *asked} if found.get(name) != asked.get(name))


def verify_decision(
    question: ExpectedProposal, agent: Object, silo: Object, public_key: str
) -> Diagnosis | None:
    """Why an agent's admission does not count; None when the silo itself has given it to this question.

    :param public_key: the key that the silo has published.
    """
    stated = status_of(agent).get("decision")
    if stated is None:
        return _unsigned_diagnosis(silo)
    try:
        decision = _read(json.dumps(stated, sort_keys=True), public_key)
    except Problem as problem:
        return _diagnosis(_place(agent), problem)
    wrong = _decision_fault(question, decision, agent, silo)
    return None if wrong is None else Diagnosis(Reason.TRUST_BROKEN, f"{_place(agent)} {wrong}.")


def _decision_fault(
    question: ExpectedProposal, decision: Decision, agent: Object, silo: Object
) -> str | None:
    """What is wrong with a decision whose signature holds."""
    proposal = status_of(agent).get("proposal") or {}
    digest = canonical_digest(proposal)
    if decision.silo != str(ref_of(silo)):
        return f"is that of silo {decision.silo}, not of {ref_of(silo)}; find out who wrote it"
    if decision.proposal != digest:
        said, found = decision.proposal[:12], digest[:12]
        return f"is about proposal {said}, and status.proposal is {found}; find out who changed it"
    if differing := question.differences(proposal, silo):
        names = ", ".join(differing)
        return (
            f"is about another {names} than the operator wrote into the agent; find out who changed it, delete the"
            " SiloAgent, and the operator makes it again"
        )
    if decision.decision != "Admitted":
        return "is Refused, and the condition Admitted is True; find out who changed it"
    return None


def _unsigned_diagnosis(silo: Object) -> Diagnosis:
    """The silo controller signs at once; somebody has to act only where the silo's key is not what it was."""
    hindrance = not_ready_message(silo)
    text = "admits the job, and its signature is awaited."
    if hindrance is None:
        return Diagnosis(Reason.ADMITTING, text)
    return Diagnosis(Reason.SILO_NOT_READY, f"{text} {hindrance}")


def offer_doubt(silo: Object, public_key: str) -> Diagnosis | None:
    """Why what a Silo offers is not the silo's word; None when its published key has signed it."""
    stated, ref, hindrance = status_of(silo).get("offer"), ref_of(silo), not_ready_message(silo)
    if stated is None and hindrance is None:
        text = f"Silo {ref} has not signed its offer yet; its silo controller is about to do it."
        return Diagnosis(Reason.KEY_PENDING, text)
    if stated is None:
        text = f"Silo {ref} has not signed its offer, and the job waits until it has. {hindrance}"
        return Diagnosis(Reason.SILO_NOT_READY, text)
    if _of_earlier_key(stated, silo, public_key):
        text = f"Silo {ref} has a new key, and has not signed its offer with it yet; it is about to do it."
        return Diagnosis(Reason.KEY_PENDING, text)
    try:
        _read_offer(json.dumps(stated, sort_keys=True), str(ref), public_key)
    except Problem as problem:
        where = f"Silo {ref}: the signed offer in status.offer"
        return _diagnosis(where, problem)
    return None


def _of_earlier_key(offer: Object, silo: Object, public_key: str) -> bool:
    """Whether a remote silo has signed the offer with a key that it has replaced since."""
    try:
        keys = registered_keys(silo) if remote_of(silo) is not None else ()
    except Problem:
        return False
    return public_key in keys and any(offer.get("publicKey") == key for key in keys[: keys.index(public_key)])


def not_ready_message(silo: Object) -> str | None:
    """What prevents a silo from signing, as it reports it."""
    found = condition(silo, ConditionType.READY)
    return str(found["message"]) if found is not None and found["status"] == "False" else None


def _diagnosis(where: str, problem: Problem) -> Diagnosis:
    newer = problem.code == "unsupported"
    remedy = "run a newer version of the operator" if newer else "find out who wrote it"
    text = f"{where} does not count: {problem.detail.rstrip('.')}; {remedy}."
    return Diagnosis(Reason.UNREADABLE if newer else Reason.TRUST_BROKEN, text)


def _place(agent: Object) -> str:
    return f"the signed decision in status.decision of SiloAgent {ref_of(agent)}"


@lru_cache(maxsize=4096)
def _read(document: str, public_key: str) -> Decision:
    """A decision, verified once: a job is reconciled with every change of any of its agents.

    :raises Problem: as `read_decision`.
    """
    return read_decision(json.loads(document), public_key)


@lru_cache(maxsize=4096)
def _read_offer(document: str, silo: str, public_key: str) -> Offer:
    """An offer, verified once.

    :raises Problem: as `read_offer`.
    """
    return read_offer(json.loads(document), silo, public_key)
