"""What an institution is asked to agree to, and which of its decisions is about exactly that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from fedsilo.api.agent import Member, Proposal, SiloAgentSpec
from fedsilo.api.digest import canonical_digest
from fedsilo.api.silo_policy import Approval


def propose(spec: SiloAgentSpec, trainer_image: str, guard_image: str) -> Proposal:
    """The proposal of an agent, with the images that would run, whether job, silo or operator name them."""
    job, trust = spec.job, spec.trust
    return Proposal(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        spec_digest=job.spec_digest,
        url=trust.url,
        address=trust.address,
        authority=authority_digest(trust.ca_certificate),
        task_key=trust.task_key,
        members=members_digest(trust.members),
        trainer_image=trainer_image,
        guard_image=guard_image,
    )


def authority_digest(certificate: str | None) -> str | None:
    """By what a proposal names an authority in PEM; None for those of the system."""
    return None if certificate is None else hashlib.sha256(certificate.encode()).hexdigest()


def members_digest(members: Iterable[Member] | None) -> str | None:
    """By what a proposal names the keys of all silos; None where silos need not know each other's."""
    if members is None:
        return None
    listed = [member.model_dump(mode="json", by_alias=True) for member in members]
    return canonical_digest({"members": listed})


def proposal_digest(proposal: Proposal) -> str:
    """SHA-256, in hexadecimal, by which an approval names the proposal."""
    fields: dict[str, Any] = proposal.model_dump(mode="json", by_alias=True, exclude_none=True)
    return canonical_digest(fields)


def decision_on(approvals: Iterable[Approval], proposal: Proposal, has_begun: bool) -> Approval | None:
    """The decision that applies to a proposal; None where a person has yet to decide.

    A refusal applies to the specification, whatever else changes. An approval applies to its proposal only; one that
    names none comes from an earlier version, and lets an agent go on that has begun with it.

    :param has_begun: whether guard and trainer of this very agent were made before.
    """
    for entry in approvals:
        if entry.job != proposal.uid or entry.spec_digest != proposal.spec_digest:
            continue
        agreed = has_begun if entry.proposal is None else entry.proposal == proposal_digest(proposal)
        if entry.decision == "Refused" or agreed:
            return entry
    return None
