"""The pods of a job: which one belongs to which component, and why there is nothing to read from one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.cli.cluster.federation import COMPONENT, SILO, silo_refs
from fedsilo.cli.cluster.text import plain_line
from fedsilo.explanation.explain import has_ended

COMPONENT_NAMES = ("aggregator", "guard", "trainer")


@dataclass(frozen=True)
class ComponentView:
    """One component of a job, with its pods, the newest first: a Job makes a new pod for each try.

    :param silo: name of its silo; None for the aggregator.
    """

    name: str
    silo: str | None
    namespace: str
    pods: Sequence[Object]

    @property
    def label(self) -> str:
        """How its lines are marked."""
        return f"{self.silo}/{self.name}" if self.silo else self.name


def components(job: Object, pods: Sequence[Object]) -> Iterator[ComponentView]:
    """The aggregator, then guard and trainer of each silo, in the order of the job's silos."""
    yield ComponentView("aggregator", None, job["metadata"]["namespace"], _pods_of(pods, "aggregator", None))
    for silo, namespace in silo_refs(job).items():
        for component in ("guard", "trainer"):
            yield ComponentView(component, silo, namespace, _pods_of(pods, component, silo))


def _pods_of(pods: Sequence[Object], component: str, silo: str | None) -> Sequence[Object]:
    found = [
        pod
        for pod in pods
        if pod["metadata"]["labels"].get(COMPONENT) == component
        and (silo is None or pod["metadata"]["labels"].get(SILO) == silo)
    ]
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


def why_no_pod(component: ComponentView, job: Object, closed: Collection[str]) -> str:
    """Why a component has no pod, as far as that is known.

    :param closed: namespaces whose pods this login may not list.
    """
    if component.namespace in closed:
        return f"this login may not list pods in namespace {component.namespace}; ask the institution for its log"
    if has_ended(job):
        return "its pod is gone, since the job has ended"
    if component.silo is None:
        running = condition(job, ConditionType.RUNNING)
        return f"no pod; {_message(running, 'it starts when the agents of all silos run')}"
    entry: Mapping[str, Any] = next(
        (silo for silo in status_of(job).get("silos") or () if silo["name"] == component.silo), {}
    )
    text = ": ".join(plain_line(entry[key]) for key in ("phase", "message") if entry.get(key))
    return f"no pod; {text or 'the operator has not made its agent yet'}"


def _message(found: Mapping[str, Any] | None, otherwise: str) -> str:
    return plain_line(found["message"]) if found and found.get("message") else otherwise


def why_silent(pod: Object) -> str | None:
    """Why a pod has no log yet; None when it has one."""
    status = status_of(pod)
    for check in status.get("initContainerStatuses") or ():
        state = check.get("state") or {}
        if "running" in state:
            return "it begins when its network is seen to be closed"
        if "waiting" in state:
            return _reason(state["waiting"])
        end = state.get("terminated") or {}
        if end and end.get("exitCode") != 0:
            return f"it did not begin, since the look at its network failed: {_reason(end)}"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if "waiting" in state and not container.get("lastState"):
            return _reason(state["waiting"])
        return None
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False":
        return _reason(scheduled)
    if status.get("phase") == "Failed":
        return _reason(status)
    return "its container has not begun"


def _reason(state: Mapping[str, Any]) -> str:
    return plain_line(": ".join(state[key] for key in ("reason", "message") if state.get(key)) or "it waits")
