"""Evictions as an API server answers them, and the controller that counts what budgets allow."""

from __future__ import annotations

from fedsilo.api.observed import Object, holds, status_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.objects import DISRUPTION_BUDGET, POD, Ref, is_deleted, labels_of, ref_of
from tests.operator_fakes.cluster import FakeCluster


def cordon(cluster: FakeCluster, name: str, unschedulable: bool = True) -> None:
    """Let no further pod be placed on a node, as before a drain; or let all be placed there again."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "namespace": ""}}
    cluster.put(node | {"spec": {"unschedulable": unschedulable}})


def count_budgets(cluster: FakeCluster) -> None:
    """Act as the disruption controller of kube-controller-manager, for budgets that count pods."""
    for budget in cluster.glance(DISRUPTION_BUDGET):
        pods = [pod for pod in _pods_of(cluster, budget) if not is_deleted(pod)]
        names = {ref_of(pod).name for pod in pods}
        evicted = {
            name: time for name, time in status_of(budget).get("disruptedPods", {}).items() if name in names
        }
        healthy = sum(holds(pod, "Ready") and ref_of(pod).name not in evicted for pod in pods)
        wanted = budget["spec"]["minAvailable"]
        _state(cluster, budget, max(0, healthy - wanted), evicted, budget["metadata"]["generation"])


def evict(cluster: FakeCluster, ref: Ref) -> bool:
    """Ask for the eviction of a pod; False where a budget refuses it for now."""
    pod = cluster.peek(POD, ref)
    budgets = [
        budget
        for budget in cluster.objects(DISRUPTION_BUDGET)
        if any(ref_of(found) == ref for found in _pods_of(cluster, budget))
    ]
    assert len(budgets) <= 1, "the eviction API refuses a pod of two budgets for good"
    if not is_deleted(pod) and holds(pod, "Ready") and budgets:
        status = status_of(budgets[0])
        allowed = status.get("disruptionsAllowed", 0)
        if status.get("observedGeneration") != budgets[0]["metadata"]["generation"] or allowed < 1:
            return False
        evicted = status.get("disruptedPods", {}) | {ref.name: timestamp(cluster.now())}
        _state(cluster, budgets[0], allowed - 1, evicted, budgets[0]["metadata"]["generation"])
    cluster.remove(POD, ref)
    return True


def _pods_of(cluster: FakeCluster, budget: Object) -> list[Object]:
    selector = budget["spec"]["selector"]["matchLabels"].items()
    namespace = ref_of(budget).namespace
    return [
        pod
        for pod in cluster.glance(POD)
        if ref_of(pod).namespace == namespace and selector <= labels_of(pod).items()
    ]


def _state(
    cluster: FakeCluster, budget: Object, allowed: int, evicted: dict[str, str], generation: int
) -> None:
    status = {"observedGeneration": generation, "disruptionsAllowed": allowed, "disruptedPods": evicted}
    if status != status_of(budget):
        cluster.put(budget | {"status": status}, "disruption-controller")
