"""Every reason of a condition or an Event of the operator, that programs match on.

docs/operator.md has them in one table.
A job that fails of an error of `fedsilo.errors` carries that error's reason; those are here too.
"""

from __future__ import annotations

from enum import StrEnum

from fedsilo.api import conditions
from fedsilo.api.conditions import AgentReason, GuardState, ObjectionReason
from fedsilo.hub.contact import ContactReason


class Reason(StrEnum):
    """Reasons of conditions and events, which are CamelCase and stable: people and alerts match on them."""

    # The job as written
    ACCEPTED = "Accepted"
    UNVERIFIED = conditions.UNVERIFIED_REASON
    UNREADABLE = conditions.UNREADABLE_REASON
    MANIFEST_INVALID = ObjectionReason.MANIFEST_INVALID
    SILO_NOT_FOUND = "SiloNotFound"
    SILO_NOT_READY = "SiloNotReady"
    KEY_PENDING = "KeyPending"
    SILO_AMBIGUOUS = "SiloAmbiguous"
    QUORUM_IMPOSSIBLE = "QuorumImpossible"

    # Admission by the silos
    ADMITTED = AgentReason.ADMITTED
    ADMITTING = AgentReason.ADMITTING
    POLICY_REFUSED = ObjectionReason.POLICY_REFUSED
    APPROVAL_PENDING = ObjectionReason.APPROVAL_PENDING
    APPROVAL_REFUSED = ObjectionReason.APPROVAL_REFUSED
    DATASET_MISSING = ObjectionReason.DATASET_MISSING
    TRUST_BROKEN = ObjectionReason.TRUST_BROKEN

    # All agents together
    GANG_INCOMPLETE = "GangIncomplete"
    SUSPENDED_BY = "SuspendedBy"

    # Pods
    STARTING = AgentReason.STARTING
    RUNNING = AgentReason.RUNNING
    SUSPENDED = AgentReason.SUSPENDED
    RESUMED = "Resumed"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_NOT_FOUND = "ImageNotFound"
    VOLUME_MISSING = "VolumeMissing"
    POD_REFUSED = "PodRefused"
    CONFIG_MISSING = "ConfigMissing"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    STORAGE_FULL = GuardState.STORAGE_FULL
    AUDIT_FULL = GuardState.AUDIT_FULL
    RESTARTING = "Restarting"
    BACKOFF_LIMIT_EXCEEDED = AgentReason.BACKOFF_LIMIT_EXCEEDED
    TRAINER_LOST = AgentReason.TRAINER_LOST

    # Outputs
    DELIVERED = "Delivered"
    OUTPUT_FAILED = "OutputFailed"

    # Ends
    COMPLETE = AgentReason.COMPLETE
    FINISHED = AgentReason.FINISHED
    DATA_INVALID = ObjectionReason.DATA_INVALID
    QUORUM_LOST = "QuorumLost"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SILO_FAILED = "SiloFailed"
    JOB_FAILED = "JobFailed"
    AUDIT_BROKEN = "AuditBroken"
    WORKDIR_CONFLICT = "WorkdirConflict"
    FILE_DAMAGED = "FileDamaged"
    STORAGE_FAILED = "StorageFailed"
    METHOD_ERROR = ObjectionReason.METHOD_ERROR
    PROTOCOL_PROBLEM = "ProtocolProblem"
    INTERNAL_ERROR = "InternalError"

    # The API server
    API_REFUSED = "ApiRefused"
    NAME_TAKEN = "NameTaken"

    # Keys
    KEY_READY = "KeyReady"
    KEY_MISSING = "KeyMissing"
    KEY_INVALID = "KeyInvalid"
    KEY_ANNOUNCED = "KeyAnnounced"
    KEY_KEPT = "KeyKept"
    INVITED = "Invited"
    ENROLMENT_PENDING = "EnrolmentPending"
    REVOKED = "Revoked"
    SEEN = "Seen"
    NOT_SEEN = "NotSeen"
    LEFT = "Left"

    # A Silo as written
    VALID = "Valid"

    # Budgets
    SAME_DATA = "SameData"
    SEPARATE = "Separate"

    # The hub, as an institution's own cluster sees it
    HUB_REACHED = ContactReason.REACHED
    HUB_UNREACHABLE = ContactReason.UNREACHABLE
    INVITATION_REFUSED = ContactReason.INVITATION_REFUSED
    HUB_REFUSED = ContactReason.REFUSED


WARNING_REASONS = frozenset({Reason.API_REFUSED, Reason.NAME_TAKEN, Reason.TRUST_BROKEN, Reason.UNREADABLE})
"""Reasons that somebody must act upon, whatever the status of the condition."""

PROGRESS_REASONS = frozenset({Reason.ADMITTING, Reason.STARTING, Reason.SUSPENDED, Reason.FINISHED})
"""Reasons for which a condition of a job is False without anything being wrong."""

HARMLESS_REASONS = frozenset({Reason.SUSPENDED_BY, Reason.EVICTED})
"""Reasons for which pods do not run that are worth an Event, and after which they run again without anybody's help."""
