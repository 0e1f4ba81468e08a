"""What the status of a FederatedJob, Silo or SiloAgent may contain: types of conditions, and phases."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ConditionType(StrEnum):
    """What a condition is about."""

    # FederatedJob, in the order in which a job comes to them
    ACCEPTED = "Accepted"
    ADMITTED = "Admitted"  # of a SiloAgent too
    SILOS_READY = "SilosReady"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    OUTPUTS_DELIVERED = "OutputsDelivered"
    """Whether the outputs beside the model arrived, of a job that asks for any."""
    COMPLETE = "Complete"
    FAILED = "Failed"  # of a SiloAgent too

    # Silo and SiloAgent
    READY = "Ready"  # of a FederatedJob once it has a model
    STALLED = "Stalled"
    """Condition of a FederatedJob that has failed, as kstatus knows it; else absent."""
    FINISHED = "Finished"
    CONNECTED = "Connected"
    """Whether the institution of a remote Silo was heard of a short time ago; a condition of its SiloAgents too."""
    VALID = "Valid"
    """Condition of a Silo: whether its spec is one that jobs can use, by the checks that `fedsilo validate` makes."""
    BUDGETS_SEPARATE = "BudgetsSeparate"
    """Condition of a Silo with privacy budgets: False where two of its datasets are of the same data, else absent."""
    HUB_REACHED = "HubReached"  # of the Silo in an institution's own cluster


UNVERIFIED_REASON = "Unverified"
"""Reason of `Accepted` when the operator cannot check the job's method: the aggregator's image decides."""

UNREADABLE_REASON = "Unreadable"
"""Reason of `Accepted` or `Admitted` when the operator cannot read what another version of it created or started."""


class ObjectionReason(StrEnum):
    """Why a silo does not admit a job, the gravest first; a reason of the agent's condition `Admitted`."""

    TRUST_BROKEN = "TrustBroken"
    MANIFEST_INVALID = "ManifestInvalid"
    METHOD_ERROR = "MethodError"
    POLICY_REFUSED = "PolicyRefused"
    DATASET_MISSING = "DatasetMissing"
    DATA_INVALID = "DataInvalid"
    APPROVAL_REFUSED = "ApprovalRefused"
    APPROVAL_PENDING = "ApprovalPending"


class AgentReason(StrEnum):
    """Why a SiloAgent is in its state, where no silo objects and its place does not know better."""

    ADMITTED = "Admitted"
    ADMITTING = "Admitting"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    TRAINER_LOST = "TrainerLost"
    COMPLETE = "Complete"
    FINISHED = "Finished"


class JobPhase(StrEnum):
    """One word that sums up the conditions of a FederatedJob, for people; nothing is decided by it."""

    PENDING = "Pending"
    ADMITTING = "Admitting"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    TERMINATING = "Terminating"


ENDS: Final = (JobPhase.COMPLETE, JobPhase.FAILED)
"""Phases that a job never leaves."""


class AgentPhase(StrEnum):
    """How far a silo is: the phase of its SiloAgent, and of its entry in the job's status."""

    PENDING = "Pending"
    APPROVAL_PENDING = "ApprovalPending"
    REFUSED = "Refused"
    ADMITTED = "Admitted"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    FAILED = "Failed"

    LEFT_OUT = "LeftOut"
    """Only in the job's status: it matched the selector and had not admitted the job when the job started."""


class GuardState(StrEnum):
    """What keeps a silo's guard from going on, as it says itself; the gravest first."""

    STORAGE_FULL = "StorageFull"
    AUDIT_FULL = "AuditFull"


GUARD_STATE_TEXTS: Final[Mapping[str, str]] = {
    GuardState.STORAGE_FULL: "the disk of its guard is full, so that it waits and loses nothing; make room on the "
    "volume of its agent, and it goes on by itself.",
    GuardState.AUDIT_FULL: "refusals and failures fill its guard's audit log, so that it takes no task for a while; "
    "find out what is refused again and again, with `fedsilo silo receipts` or in the guard's log.",
}
"""Each state of a guard -> what it means, and the remedy."""


class SiloState(StrEnum):
    """What the aggregator knows of a silo."""

    AWAITED = "Awaited"
    REPORTED = "Reported"
    FAILED = "Failed"
    IDLE = "Idle"
    """Not asked in the open round."""

    FINISHED = "Finished"
