"""What tasks with classes share: that the job says them, and weights against their imbalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsilo.api.data import DataSpec
from fedsilo.api.faults import ABSENT_VALUE, Finding

if TYPE_CHECKING:
    from torch import Tensor


def class_count_findings(data: DataSpec, why: str) -> list[Finding]:
    """The fault of a job that does not say its classes."""
    if data.classes is None:
        return [("spec.data.classes", ABSENT_VALUE, f"is missing: {why}", "say how many classes there are")]
    return []


def no_classes_findings(data: DataSpec, task: str, instead: str) -> list[Finding]:
    """The fault of a job that says classes where they have no meaning."""
    if data.classes is None:
        return []
    return [("spec.data.classes", data.classes, f"has no meaning for {task}", f"remove it; {instead}")]


def balanced_weights(counts: Tensor) -> Tensor:
    """Weights n / (K n_c) of the classes that are there, K of them, and 0 of those that are not (King and Zeng,
    "Logistic Regression in Rare Events Data", 2001): every class that is there weighs the same in sum.

    :param counts: n_c of each class, (C,).
    """
    present = counts > 0
    weights = counts.sum() / (present.sum() * counts.clamp(min=1))
    return (weights * present).float()
