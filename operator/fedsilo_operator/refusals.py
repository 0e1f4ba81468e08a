"""What the operator may not do, in words: it goes into a condition, for only a person can change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsilo_operator.cluster.interface import ClusterError, FieldConflict, Refused
from fedsilo_operator.objects import Kind, Ref
from fedsilo_operator.reasons import Reason

REASONS = (Reason.API_REFUSED, Reason.NAME_TAKEN)

_SHOWN, _LONGEST = 20, 1000
"""Refusals of one message, and characters of each."""


class Taken(Refused):
    """An object that is not ours has the name."""


class Said(Refused):
    """Something was refused, and the status of the object says so already."""


@dataclass(frozen=True)
class Refusal:
    """A write that will not be done, however often it is asked for, until a person does something.

    :param message: object, the API server's words, remedy; sentences.
    """

    kind: Kind
    ref: Ref
    reason: Reason
    message: str


def refusal(kind: Kind, ref: Ref, error: ClusterError) -> Refusal:
    """What became of a write to that object."""
    if isinstance(error, Taken):
        text = (
            f"{kind} {ref} is there already and is not one that the operator made for this, so it is left as it is."
            " Delete or rename it if nobody needs it; else make the job anew under another name."
        )
        return Refusal(kind, ref, Reason.NAME_TAKEN, text)
    words = " ".join(str(error).split()).rstrip(".")
    remedy = (
        f"Change what it names (a quota, a right, an admission rule, a webhook) for namespace {ref.namespace}; it is"
        " tried again every few minutes."
    )
    if isinstance(error, FieldConflict):
        remedy = "Undo what that manager has changed, or delete the object: the operator then makes it again."
    return Refusal(kind, ref, Reason.API_REFUSED, f"The API server refuses {kind} {ref}: {words}. {remedy}")


def told(refusals: Sequence[Refusal]) -> tuple[Reason, str] | None:
    """Reason and message of several refusals; None for none."""
    lines = [found.message[:_LONGEST] for found in refusals[:_SHOWN]]
    more = [f"and {len(refusals) - _SHOWN} more"] if len(refusals) > _SHOWN else []
    return (refusals[0].reason, "\n".join(lines + more)) if refusals else None
