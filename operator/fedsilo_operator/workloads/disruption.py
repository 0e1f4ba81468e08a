"""Budgets by which evictions ask before they move the pods of a job, and what shows that a node is being drained."""

from __future__ import annotations

from collections.abc import Mapping

from fedsilo.api.observed import Object
from fedsilo_operator.objects import DISRUPTION_BUDGET, Ref, is_deleted
from fedsilo_operator.workloads.pod import metadata

DRAIN_TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints of a node that an autoscaler empties without cordoning it: Cluster Autoscaler's and Karpenter's."""


def disruption_budget(
    ref: Ref, labels: Mapping[str, str], selector: Mapping[str, str], pods: int, *, owner: Object
) -> Object:
    """A PodDisruptionBudget of pods that have no scale: such a one counts pods, and knows no percentages.

    A pod that is not ready may go at any time, or a node with a broken one could never be drained.

    :param pods: how many have to stay; 0 where all may be evicted.
    :param owner: with which it is deleted.
    """
    return {
        "apiVersion": DISRUPTION_BUDGET.api,
        "kind": DISRUPTION_BUDGET.name,
        "metadata": metadata(ref, labels, owner),
        "spec": {
            "minAvailable": pods,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def is_drained(node: Object) -> bool:
    """Whether somebody empties the node: it is cordoned, as every drain begins, or an autoscaler has marked it."""
    spec = node.get("spec") or {}
    taints = {taint.get("key") for taint in spec.get("taints") or ()}
    return bool(spec.get("unschedulable")) or is_deleted(node) or bool(taints & DRAIN_TAINTS)
