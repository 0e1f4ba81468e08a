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
