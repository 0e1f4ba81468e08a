"""Names and labels of children: deterministic, so that two operators can never create the same child twice.

Every name is short enough for the suffixes that a Job adds to its pods (63 characters, RFC 1123).
"""

from __future__ import annotations

from fedsilo.api import agent
from fedsilo_operator.objects import (
    AGENT,
    COMPONENT,
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_UID,
    MANAGED_BY,
    MANAGER,
    SILO,
    Ref,
)

SIGNING_KEY = "fedsilo-signing-key"
"""Secret with a silo's signing key: the same name in every namespace, so that a role can be limited to it."""

LEDGERS = "ledgers"
"""Component of the claim with a silo's ledgers of what was learned of its datasets."""

MASTER_KEY = "fedsilo-operator-key"
"""Secret with the key from which the keys of jobs derive, in the operator's namespace."""


def aggregator_name(job: Ref) -> str:
    """Name of everything that belongs to the job's aggregator, but for its claim."""
    return f"{job.name}-aggregator"


def claim_name(job: Ref, uid: str) -> str:
    """Name of the claim that holds the model: a job that is created anew under the same name gets a new one."""
    return f"{job.name}-{uid[:8]}"


def agent_name(job: Ref, uid: str, silo: Ref) -> str:
    """Name of the SiloAgent of a job in a silo, 40 characters at most."""
    return agent.agent_name(job.name, uid, silo.namespace, silo.name)


def job_labels(job: Ref, uid: str, component: str) -> dict[str, str]:
    """Labels of a job's child."""
    return {
        MANAGED_BY: MANAGER,
        COMPONENT: component,
        JOB_UID: uid,
        JOB_NAME: job.name,
        JOB_NAMESPACE: job.namespace,
    }


def agent_labels(job: Ref, uid: str, silo: Ref, component: str) -> dict[str, str]:
    """Labels of what belongs to a job in one silo."""
    return job_labels(job, uid, component) | {SILO: silo.name, AGENT: agent_name(job, uid, silo)}


def ledgers_name(silo: str) -> str:
    """Name of the claim with a Silo's ledgers: the same for a Silo that is made again."""
    return f"fedsilo-ledgers-{silo}"


def ledgers_labels(silo: str) -> dict[str, str]:
    """Labels of that claim, which belongs to no job."""
    return {MANAGED_BY: MANAGER, COMPONENT: LEDGERS, SILO: silo}
