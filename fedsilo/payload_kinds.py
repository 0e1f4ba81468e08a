"""The payload kinds are what a silo can be asked to send, for manifests and wire alike, and for those who permit it.

The list is closed: CONTRIBUTING.md says what a new kind takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

PayloadKind = Literal[
    "model",
    "class_counts",
    "class_means",
    "class_covariances",
    "averaged_gradients",
    "feature_statistics",
    "confusion",
]

KINDS: tuple[str, ...] = get_args(PayloadKind)
"""All payload kinds, in the order in which they are listed everywhere."""

SECURE_AGGREGATION = "secure_aggregation"
"""What a guard sends in a job with secure aggregation: masked sums of the kinds above, and the protocol's messages."""

BLOCK_KINDS = (*KINDS, SECURE_AGGREGATION)
"""Kinds of blocks on the wire. A silo permits or forbids the payload kinds only: the last is made of those."""


@dataclass(frozen=True)
class KindDescription:
    """The description of a payload kind.

    :param noun: several of them, within a sentence.
    :param meaning: what they tell about a silo.
    :param counts_samples: whether they tell how many samples of a class a silo holds.
    """

    noun: str
    meaning: str
    counts_samples: bool = False


DESCRIPTIONS: Mapping[str, KindDescription] = {
    "model": KindDescription("models", "the weights of the model after training on the silo's data"),
    "class_counts": KindDescription(
        "counts of samples", "the number of samples of each class", counts_samples=True
    ),
    "class_means": KindDescription(
        "class means",
        "the mean of the features of each class, with its number of samples",
        counts_samples=True,
    ),
    "class_covariances": KindDescription(
        "class covariances",
        "the covariance of the features of each class, or, to be added, the mean of their squares and products",
    ),
    "averaged_gradients": KindDescription(
        "averaged gradients", "the classifier's gradient of each class, averaged over its samples"
    ),
    "feature_statistics": KindDescription(
        "statistics of features",
        "of each column of a table or channel of images: how many values there are and how many are missing, their "
        "mean and spread, and how many lie between the edges that the job names; for the metric r2, the mean and "
        "spread of the targets of validation examples and of the model's errors",
    ),
    "confusion": KindDescription(
        "counts of answers",
        "of the validation examples of each class, or of their pixels or labels, how many the model takes for which "
        "class; and where the job asks for it, how many of its answers of which confidence are correct",
        counts_samples=True,
    ),
}
"""Every kind of `KINDS`."""


def describe_kind(kind: str) -> KindDescription:
    """Description of the kind; a resource of a later version may name one that this version does not know."""
    return DESCRIPTIONS.get(kind, KindDescription(kind.replace("_", " "), "a kind of a third party"))


def count_samples(kinds: Collection[str]) -> bool:
    """Whether payloads of these kinds tell how many samples of a class a silo holds."""
    return any(describe_kind(kind).counts_samples for kind in kinds)
