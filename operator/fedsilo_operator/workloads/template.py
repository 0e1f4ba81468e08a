"""What a pod template adds to the operator's pods, which keep what they need for their security and their volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from fedsilo.api.notations import Quantity
from fedsilo.api.placement import Affinity
from fedsilo.api.pod_template import PodMetadata, PodTemplate
from fedsilo.api.resources import POD_RESOURCES, Section

GUARD_REQUESTS: Mapping[str, str] = {"cpu": "100m", "memory": "128Mi"}
"""Requests of a guard, which copies, hashes and sends. It has no limits of its own: a memory limit would count the
pages of files that it reads."""

ACCOUNTING_REQUESTS: Mapping[str, str] = {"cpu": "100m", "memory": "256Mi"}
"""Requests of a guard that composes mechanisms, with SciPy."""

_LISTS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")

Amounts = Mapping[Section, Mapping[str, Quantity]]


def merged_metadata(*given: PodMetadata | None) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of several templates; of a key in two of them the last value counts."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for metadata in given:
        if metadata is not None:
            labels |= metadata.labels or {}
            annotations |= metadata.annotations or {}
    return labels, annotations


def node_fields(template: PodTemplate, priority_class: str | None) -> dict[str, Any]:
    """Fields of a pod by which it may run on a node, whatever it runs beside.

    :param priority_class: PriorityClass where the template names none; None for the cluster's default.
    """
    fields: dict[str, Any] = {}
    if template.node_selector:
        fields["nodeSelector"] = dict(template.node_selector)
    if template.tolerations:
        fields["tolerations"] = _as_json(template.tolerations)
    if priority := template.priority_class_name or priority_class:
        fields["priorityClassName"] = priority
    return fields


def placement_fields(template: PodTemplate, affinity: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Fields of a pod that choose among the nodes on which it may run.

    :param affinity: the operator's own, which holds beside the template's.
    """
    fields: dict[str, Any] = {}
    if merged := _merged_affinity(template.affinity, affinity or {}):
        fields["affinity"] = merged
    if template.topology_spread_constraints:
        fields["topologySpreadConstraints"] = _as_json(template.topology_spread_constraints)
    return fields


def _merged_affinity(given: Affinity | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's affinity with the template's: each entry of the operator's own lists stays."""
    merged: dict[str, Any] = (
        {}
        if given is None
        else given.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    )
    for kind, lists in own.items():
        beside = merged.get(kind, {})
        both = {name: [*lists.get(name, ()), *beside.get(name, ())] for name in _LISTS}
        merged[kind] = {name: entries for name, entries in both.items() if entries}
    return merged


def guard_resources(given: Amounts, composes: bool) -> dict[str, Any]:
    """Resources of a guard: what it needs, unless its silo writes something else.

    A request of ours above a limit would be refused by the API server, so there it is the limit.

    :param composes: whether it composes mechanisms of differential privacy.
    """
    limits, written = given.get("limits", {}), given.get("requests", {})
    requests = {
        name: min(Quantity(amount), limits.get(name, Quantity(amount)), key=lambda each: each.exact_value)
        for name, amount in (ACCOUNTING_REQUESTS if composes else GUARD_REQUESTS).items()
    }
    return quantities({"requests": {**requests, **written}, **({"limits": limits} if limits else {})})


def without_devices(resources: Amounts) -> dict[str, Any]:
    """CPU, memory and storage of a container, for another one that runs before it in its pod."""
    kept = {
        section: {name: amount for name, amount in amounts.items() if name in POD_RESOURCES}
        for section, amounts in resources.items()
    }
    return quantities({section: amounts for section, amounts in kept.items() if amounts})


def quantities(resources: Mapping[Section, Mapping[str, Quantity]]) -> dict[str, Any]:
    """Resources of a container as core/v1 writes them."""
    return {
        section: {name: str(amount) for name, amount in amounts.items()}
        for section, amounts in resources.items()
    }


def _as_json(models: Sequence[BaseModel]) -> list[Any]:
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
