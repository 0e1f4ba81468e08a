"""What the API server rejects, as a diagnosis for a condition: only a person can change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsilo.api.diagnosis import Diagnosis
from fedsilo_operator.cluster.interface import CallRefused, ClusterError, FieldConflict
from fedsilo_operator.messages import join_lines
from fedsilo_operator.objects import Kind, Ref
from fedsilo_operator.reasons import Reason

REASONS = (Reason.API_REFUSED, Reason.NAME_TAKEN)


class NameTaken(CallRefused):
    """An object that is not ours has the name."""


class AlreadyReported(CallRefused):
    """Something was rejected, and the status of the object reports it."""


@dataclass(frozen=True)
class Rejection:
    """A write that will not be done, however often it is asked for, until a person does something.

    :param diagnosis: object, the API server's message, remedy.
    """

    kind: Kind
    ref: Ref
    diagnosis: Diagnosis


def rejection(kind: Kind, ref: Ref, error: ClusterError) -> Rejection:
    """The rejection of a write to that object."""
    if isinstance(error, NameTaken):
        text = (
            f"{kind} {ref} is there already and is not one that the operator made for this, so it is left as it is."
            " Delete or rename it if nobody needs it; else make the job anew under another name."
        )
        return Rejection(kind, ref, Diagnosis(Reason.NAME_TAKEN, text))
    answer = " ".join(str(error).split()).rstrip(".")
    remedy = (
        f"Change what it names (a quota, a right, an admission rule, a webhook) for namespace {ref.namespace}; it is"
        " tried again every few minutes."
    )
    if isinstance(error, FieldConflict):
        remedy = "Undo what that manager has changed, or delete the object: the operator then makes it again."
    text = f"The API server refuses {kind} {ref}: {answer}. {remedy}"
    return Rejection(kind, ref, Diagnosis(Reason.API_REFUSED, text))


def diagnosis_of(rejections: Sequence[Rejection]) -> Diagnosis | None:
    """One diagnosis for several rejections; None for none."""
    if not rejections:
        return None
    messages = [found.diagnosis.message for found in rejections]
    return Diagnosis(rejections[0].diagnosis.reason, join_lines(messages))
