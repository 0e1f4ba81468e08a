"""Cached objects without what nothing reads: thousands of them must fit into a small process.

What changes only in what nothing reads changes nothing, so that it wakes nobody (`runtime/store.py`).
"""

from __future__ import annotations

import sys
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.objects import DISRUPTION_BUDGET, JOB, NODE, POD, suspend_managers

_COMMON_FIELDS = {"metadata": frozenset({"managedFields"})}
_OF_OTHERS = frozenset({"annotations", "finalizers", "generateName", "generation", "managedFields"})
_OF_PODS = frozenset(
    {"args", "securityContext", "tolerations", "topologySpreadConstraints", "volumeMounts", "volumes"}
)

UNREAD_FIELDS = {
    JOB.name: {
        "metadata": _OF_OTHERS,
        "spec": _OF_PODS | {"affinity", "initContainers", "metadata", "resources", "selector"},
        "status": frozenset(
            {
                "active",
                "completionTime",
                "ready",
                "startTime",
                "succeeded",
                "terminating",
                "uncountedTerminatedPods",
            }
        ),
    },
    POD.name: {
        # An annotation says which limits are a LimitRange's.
        "metadata": _OF_OTHERS - {"annotations"},
        "spec": _OF_PODS,
        "status": frozenset(
            {
                "containerID",
                "hostIP",
                "hostIPs",
                "imageID",
                "lastState",
                "podIP",
                "podIPs",
                "qosClass",
                "startTime",
            }
        ),
    },
    DISRUPTION_BUDGET.name: {
        "metadata": _OF_OTHERS - {"annotations", "generation"},
        "status": frozenset(
            {"conditions", "currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"}
        ),
    },
    NODE.name: {
        "metadata": _OF_OTHERS | {"labels"},
        "spec": frozenset({"podCIDR", "podCIDRs", "providerID"}),
        "status": frozenset(
            {
                "addresses",
                "allocatable",
                "capacity",
                "conditions",
                "config",
                "daemonEndpoints",
                "declaredFeatures",
                "features",
                "images",
                "nodeInfo",
                "runtimeHandlers",
                "volumesAttached",
                "volumesInUse",
            }
        ),
    },
}
"""Kind -> part of the object -> fields of it, at any depth, that the operator never reads: they make up most of a Job,
pod or node, and most of what the Job controller and the kubelet write into one."""

_NO_FIELDS: frozenset[str] = frozenset()

_SUSPEND_FIELD: Object = {"f:spec": {"f:suspend": {}}}
"""The one field of a Job whose managers are kept: they say who has suspended it."""


def lean_copy(obj: Object) -> Object:
    """A copy without what the operator never reads, such as most of `managedFields`; equal strings are kept once."""
    unread = UNREAD_FIELDS.get(obj["kind"], _COMMON_FIELDS)
    kept = {name: _interned_value(value, unread.get(name, _NO_FIELDS)) for name, value in obj.items()}
    if obj["kind"] == JOB.name and (managers := suspend_managers(obj)):
        fields = [{"manager": sys.intern(name), "fieldsV1": _SUSPEND_FIELD} for name in managers]
        kept["metadata"]["managedFields"] = fields
    return kept


def _interned_value(value: Any, unread: frozenset[str]) -> Any:
    what = type(value)
    if what is str:
        return sys.intern(value)
    if what is dict:
        return {
            sys.intern(name): _interned_value(content, unread)
            for name, content in value.items()
            if name not in unread
        }
    if what is list:
        return [_interned_value(item, unread) for item in value]
    return value
