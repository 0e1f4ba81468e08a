"""An agent's children as a real API server takes them, and what suspension does to a Job's count of failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.objects import Ref, kind_of
from fedsilo_operator.plan import ApplyAction, CreateAction
from fedsilo_operator.workloads.pod import Container, batch_job, pod_spec
from fedsilo_operator.workloads.suspension import suspension
from hack.images import TOOLBOX
from tests.cluster.namespace import Namespace, wait_until
from tests.unit.operator.silo.harness import World, agent, silo
from tests.unit.operator.silo.test_children import TEMPLATE


def children() -> list[Object]:
    """All children of one agent, in the order in which they are made."""
    template = {key: value for key, value in TEMPLATE.items() if key != "runtimeClassName"}
    world = World(agent(), silo(template=template))
    return [
        action.object for action in world.plan().actions if isinstance(action, ApplyAction | CreateAction)
    ]


@pytest.mark.parametrize("position", range(7))
def test_each_child_is_valid_to_the_last_field(namespace: Namespace, position: int) -> None:
    child = children()[position]
    child["metadata"]["namespace"] = namespace.name
    _dry_run(namespace, child)


@pytest.mark.parametrize("component", ["trainer", "guard"])
def test_pods_are_admitted_at_the_restricted_level(namespace: Namespace, component: str) -> None:
    """A Job is only warned about; its pods are what the level is enforced on."""
    (job,) = (
        child
        for child in children()
        if kind_of(child).name == "Job" and child["metadata"]["name"].endswith(component)
    )
    pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
    pod["metadata"] = pod["metadata"] | {"name": component, "namespace": namespace.name}
    _dry_run(namespace, pod)


def _dry_run(namespace: Namespace, obj: Object) -> None:
    namespace.run(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(obj)
    )


def test_a_job_that_is_suspended_and_resumed_has_not_failed(namespace: Namespace) -> None:
    """With no failure allowed at all, so that one would show."""
    job = _sleeper(namespace)
    namespace.apply(job)
    first = wait_until(lambda: _running(namespace), "the pod to run")
    _suspend(namespace, True)
    wait_until(lambda: not namespace.select("pods", "app=sleeper"), "the pod to go", 60)
    assert not _conditions(namespace) & {"Failed", "FailureTarget"}
    _suspend(namespace, False)
    second = wait_until(lambda: _running(namespace), "another pod to run")
    assert second != first
    assert not _conditions(namespace) & {"Failed", "FailureTarget"}


def _sleeper(namespace: Namespace) -> Object:
    pod = pod_spec(Container("sleeper", TOOLBOX, [], []))
    pod["containers"][0]["command"] = ["sh", "-c", "trap 'exit 143' TERM; sleep infinity & wait"]
    ref, labels = Ref(namespace.name, "sleeper"), {"app": "sleeper"}
    owner: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none", "uid": "none"}}
    job = batch_job(ref, labels, pod, owner=owner, backoff_limit=0, permanent_exit_codes=(2,))
    del job["metadata"]["ownerReferences"]
    return job


def _suspend(namespace: Namespace, suspend: bool) -> None:
    body = suspension(namespace.get("job", "sleeper"), suspend)
    namespace.run(
        "apply", "--server-side", "--field-manager=fedsilo-suspend", "-f", "-", stdin=json.dumps(body)
    )


def _running(namespace: Namespace) -> str | None:
    pods = namespace.select("pods", "app=sleeper")
    running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
    return running[0] if running and "deletionTimestamp" not in pods[0]["metadata"] else None


def _conditions(namespace: Namespace) -> set[str]:
    job = namespace.get("job", "sleeper")
    return {found["type"] for found in job["status"].get("conditions", ()) if found["status"] == "True"}
