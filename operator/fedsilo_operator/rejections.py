"""What the API server rejects, as a diagnosis for a condition: only a person can change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import CallRefused, ClusterError, FieldConflict, ObjectInvalid
from fedsilo_operator.limit_range import is_of_limit_range, limit_range_remedy
from fedsilo_operator.messages import join_lines
from fedsilo_operator.objects import Kind, Ref
from fedsilo_operator.reasons import Reason
from fedsilo_operator.refused_fields import manifest_fields

REASONS = (Reason.API_REFUSED, Reason.NAME_TAKEN, Reason.MANIFEST_INVALID)


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


def rejection(kind: Kind, ref: Ref, error: ClusterError, child: Object | None, owner: Object) -> Rejection:
    """The rejection of a write to that object.

    :param child: what was to be written; None where it was to be deleted.
    :param owner: the object that was reconciled.
    """
    if isinstance(error, ObjectInvalid) and child is not None:
        fields, immutable = manifest_fields(child, error.causes, owner)
        if fields:
            return Rejection(kind, ref, _fault_of_manifest(kind, fields, immutable))
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
    if is_of_limit_range(answer):
        remedy = limit_range_remedy(ref.namespace, "ask for another amount")
    if isinstance(error, FieldConflict):
        remedy = "Undo what that manager has changed, or delete the object: the operator then makes it again."
    text = f"The API server refuses {kind} {ref}: {answer}. {remedy}"
    return Rejection(kind, ref, Diagnosis(Reason.API_REFUSED, text))


def _fault_of_manifest(kind: Kind, fields: Sequence[str], immutable: bool) -> Diagnosis:
    """The diagnosis of a manifest of which no API server takes a child."""
    found = join_lines([f"{field}." for field in fields])
    if immutable:
        text = f"The API server takes no {kind} of this specification: {found} Correct it in a new job."
        return Diagnosis(Reason.MANIFEST_INVALID, text, permanent=True)
    text = f"The API server takes no {kind} of this Silo: {found} Correct the Silo; the job then goes on."
    return Diagnosis(Reason.API_REFUSED, text)


def diagnosis_of(rejections: Sequence[Rejection]) -> Diagnosis | None:
    """One diagnosis for several rejections; None for none."""
    if not rejections:
        return None
    found = sorted((one.diagnosis for one in rejections), key=lambda one: not one.permanent)
    return Diagnosis(found[0].reason, join_lines([one.message for one in found]), found[0].permanent)
