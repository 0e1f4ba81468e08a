"""GPUs of the test cluster, which are only numbers to schedule by."""

from __future__ import annotations

from typing import Any

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX
from tests.cluster.namespace import Namespace, pod, wait_until
from tests.cluster.test_workloads import ENDLESS_COMMAND

GPU = "nvidia.com/gpu"


def with_gpus(name: str, count: int) -> Object:
    """A pod that asks for GPUs."""
    return pod(name, TOOLBOX, ENDLESS_COMMAND, resources={"limits": {GPU: str(count)}})


def test_a_pod_waits_for_a_gpu_and_runs_when_one_is_free(namespace: Namespace, kubectl: Kubectl) -> None:
    (node,) = kubectl.get("nodes")["items"]
    gpus = int(node["status"]["allocatable"][GPU])
    namespace.apply(with_gpus("first", gpus))
    namespace.wait("pod", "first", "condition=Ready")
    namespace.apply(with_gpus("second", 1))
    wait_until(
        lambda: "Insufficient nvidia.com/gpu" in str(scheduled_condition(namespace, "second")),
        "the scheduler's word",
    )
    namespace.delete("pod", "first")
    namespace.wait("pod", "second", "condition=Ready")


def scheduled_condition(namespace: Namespace, name: str) -> Any:
    """The pod's condition PodScheduled."""
    conditions = namespace.get("pod", name)["status"].get("conditions", [])
    return next((item for item in conditions if item["type"] == "PodScheduled"), None)
