"""The payload kinds: what a silo can be asked to send, for manifests and wire alike.

The list is closed: CONTRIBUTING.md says what a new kind takes.
"""

from __future__ import annotations

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
