"""What a LimitRange of a namespace has done to a pod or claim: it refuses some, and sets limits that nobody wrote.

Neither the API server's refusal nor the kubelet's message names it; its admission plugin leaves a note on the pod.
"""

from __future__ import annotations

import re
from typing import Final

from fedsilo.api.observed import Object
from fedsilo_operator.objects import Ref

_REFUSAL: Final = re.compile(
    r"(?:minimum|maximum) \S+ usage per (?:Container|Pod|PersistentVolumeClaim)|max limit to request ratio per"
)

_NOTE: Final = "kubernetes.io/limit-ranger"
"""Annotation of a pod in which the plugin says what it has set."""

_MEMORY_LIMIT: Final = re.compile(r"memory[^;]* limit for ")


def is_of_limit_range(refusal: str) -> bool:
    """Whether an API server's refusal is a LimitRange's."""
    return _REFUSAL.search(refusal) is not None


def limit_range_remedy(namespace: str, otherwise: str) -> str:
    """What to do about such a refusal.

    :param otherwise: what to change instead.
    """
    where = f"`kubectl describe limitranges -n {namespace}`"
    return f"A LimitRange of namespace {namespace} says so: change it ({where}), or {otherwise}."


def injected_memory_limit(pod: Object) -> str | None:
    """The memory limit that a LimitRange has given a pod which asked for none; None where it has not."""
    note = (pod["metadata"].get("annotations") or {}).get(_NOTE, "")
    if not _MEMORY_LIMIT.search(note):
        return None
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", "unknown"))


def injected_limit_text(limit: str, pod: Ref, field: str) -> str:
    """Whose limit it is that a pod has exceeded, and where one of its own could be written, as sentences."""
    return (
        f"Nobody has written that limit of {limit}: a LimitRange of namespace {pod.namespace} sets it. "
        f"Change it there, or write {field}."
    )
