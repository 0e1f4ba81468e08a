"""Reading what a chart makes."""

from __future__ import annotations

from collections.abc import Iterable

from fedsilo.api.observed import Object
from tests.cluster.charts.helm import is_hook

Right = tuple[str, str, str, str]
"""Group, resource, name ("" for any), verb."""


def rights_of(items: Iterable[Object]) -> set[Right]:
    """All rights that the roles give, those of hooks excepted."""
    return {
        (group, resource, name, verb)
        for item in items
        if item["kind"] in ("Role", "ClusterRole") and not is_hook(item)
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def pod_of(item: Object) -> Object:
    """The pod of a Deployment, or that it is itself."""
    spec = item["spec"]
    return dict(spec["template"]["spec"] if item["kind"] == "Deployment" else spec)
