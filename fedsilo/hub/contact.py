"""What an institution says of its hub: whether it is reached, since when, and if not, why and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fedsilo.backoff import Backoff
from fedsilo.errors import FedsiloError, Problem

PAUSES = Backoff(1.0, 60.0)
"""Between tries to reach the hub, seconds."""


class ContactReason(StrEnum):
    """Why the hub is reached or not; a reason of the Silo's condition `HubReached`."""

    REACHED = "HubReached"
    UNREACHABLE = "HubUnreachable"
    ENROLMENT_PENDING = "EnrolmentPending"
    INVITATION_REFUSED = "InvitationRefused"
    REFUSED = "HubRefused"
    LEFT = "Left"


INVITATION_CODES = frozenset({"invitation-invalid", "invitation-used", "invitation-expired"})

UNREACHED_CODES = frozenset({"unreachable", "too-many-requests", "storage-full", "interrupted", "truncated"})
"""Refusals that pass by themselves: the gateway is there, and cannot answer now."""


@dataclass(frozen=True)
class Contact:
    """How it stands with the hub.

    :param since: since when it has been reached, not been reached, or refused.
    :param heard: when it last answered with what was asked for; None if it never has.
    """

    reached: bool
    reason: ContactReason
    message: str
    since: datetime
    heard: datetime | None = None

    @classmethod
    def of(
        cls, error: FedsiloError | None, before: Contact | None, fingerprint: str, now: datetime
    ) -> Contact:
        """What a request has shown.

        :param error: why it has failed; None if it was answered.
        :param before: what was known; None before the first request.
        :param fingerprint: of the silo's key.
        """
        reached = error is None
        heard = now if reached else (before.heard if before is not None else None)
        reason, message = _contact_reason(error, fingerprint)
        found = cls(reached, reason, message, now, heard)
        if before is None or (before.reached, before.refused) != (found.reached, found.refused):
            return found
        return replace(found, since=before.since)

    @property
    def refused(self) -> bool:
        """Whether the hub answers, and does not admit this silo."""
        return not self.reached and self.reason is not ContactReason.UNREACHABLE

    def same_as(self, other: Contact | None) -> bool:
        """Whether it says the same, whenever the hub has answered last."""
        return other is not None and replace(self, heard=None) == replace(other, heard=None)


def _contact_reason(error: FedsiloError | None, fingerprint: str) -> tuple[ContactReason, str]:
    if error is None:
        text = f"The hub knows this silo by the key with the fingerprint {fingerprint}."
        return ContactReason.REACHED, text
    if not isinstance(error, Problem) or error.code in UNREACHED_CODES:
        detail = error.detail if isinstance(error, Problem) else str(error)
        text = f"{detail}. What runs goes on, and what there is to report is reported as soon as the hub is reached."
        return ContactReason.UNREACHABLE, text
    if error.code == "not-accepted":
        text = (
            f"The consortium's office has not accepted the key with the fingerprint {fingerprint} yet; tell it the "
            "fingerprint by telephone."
        )
        return ContactReason.ENROLMENT_PENDING, text
    if error.code in INVITATION_CODES:
        return ContactReason.INVITATION_REFUSED, f"{error.detail}."
    return ContactReason.REFUSED, f"{error}."
