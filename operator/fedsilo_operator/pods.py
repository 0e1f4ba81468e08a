"""What is wrong with the pod of a Job, and how a Job ended, in words that a person can act on.

Scheduler, kubelet and Job controller each say it elsewhere: in a pod's conditions, in the state of its container, in
its termination message, or only in an Event. All of that is read here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsilo_operator.endings import Failure, failure_of, reason_in
from fedsilo_operator.objects import AGENT, COMPONENT, Object, condition, holds, is_deleted, labels_of, ref_of
from fedsilo_operator.reasons import Reason

_CHECK = "look at the trainer's network"
"""What the first container of a trainer's pod is called here."""

_GUARD_IMAGE = "correct spec.agent.guardImage of the Silo and delete Jobs {agent}-trainer and {agent}-guard"

REMEDIES = {
    "aggregator": {
        "image": "name another in spec.aggregator.image of a new job",
        "resources": "change spec.aggregator.resources in a new job",
        "storage": "spec.aggregator.storage of the job",
        "dataset": "spec.aggregator.datasets of the job",
        "memory": "Raise the memory limit in spec.aggregator.resources of a new job.",
    },
    "trainer": {
        "image": "name another in spec.agents.image of a new job",
        "resources": "change spec.agent (resources, nodeSelector, tolerations) of the Silo and delete Job {job}",
        "storage": "spec.agent.storage of the Silo",
        "dataset": "spec.datasets of the Silo",
        "memory": "Raise the memory limit in spec.agent.resources of the Silo, or make spec.training.batchSize smaller "
        "in a new job.",
    },
    "guard": {
        "image": _GUARD_IMAGE,
        "resources": "change spec.agent (nodeSelector, tolerations) of the Silo and delete Job {job}",
        "storage": "spec.agent.storage of the Silo",
        "dataset": "spec.datasets of the Silo",
        "memory": "Use a node with more memory: a guard has no limit of its own.",
    },
    _CHECK: {
        "image": _GUARD_IMAGE,
    },
}
"""Component, or look at a network -> what to do about its image, resources and memory; which fields name its volumes.

A Job of a silo that is deleted is made anew from the Silo as it is then; a job's own spec cannot be changed.
"""

_PULL = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
_CREATE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MOUNT = {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
"""The scheduler's words for a claim that a pod names in vain."""

_PASSING = ("failed to sync", "not registered")
"""A kubelet's words for its own cache, which is a moment behind: no trouble."""


@dataclass(frozen=True)
class Trouble:
    """Why a pod does not run.

    :param message: what, why, and what to do, as sentences.
    :param fatal: waiting does not help: what the pod is made of has to change.
    """

    reason: Reason
    message: str
    fatal: bool = False


@dataclass(frozen=True)
class Ending:
    """How a Job ended.

    :param reason: that of the process where it left one.
    """

    succeeded: bool
    reason: str
    message: str


def running(pods: Sequence[Object]) -> bool:
    """Whether a pod runs, on a node that answers, or is done: its Job is about to say so.

    A container ends, and its pod is no longer ready, a moment before the kubelet gives the pod its last phase.
    """
    return any(
        _phase(pod) == "Succeeded" or (_runs(pod) and (holds(pod, "Ready") or "terminated" in _state(pod)))
        for pod in pods
    )


def alive(pods: Sequence[Object]) -> bool:
    """Whether a pod may still write to its volume."""
    return any(_phase(pod) not in ("Succeeded", "Failed") for pod in pods)


def ending(job: Object | None, pods: Sequence[Object]) -> Ending | None:
    """How the Job ended; None while it has not.

    A Job fails when all its pods have ended (Kubernetes 1.31). Pods that seem to live are news on its way, and a
    pod's last words are worth waiting for.

    :param pods: those that the Job made; none to ask the Job alone.
    """
    if job is None:
        return None
    who = _component(job)
    if holds(job, "Complete"):
        return Ending(True, Reason.COMPLETE, f"The {who} is done.")
    if not holds(job, "Failed") or alive(pods):
        return None
    found = condition(job, "Failed") or {}
    last = _last_failure(pods)
    if last is None:
        message = str(found.get("message") or "")
        reason = reason_in(message) or found.get("reason") or Reason.INTERNAL_ERROR
        return Ending(False, reason, f"The {who} failed: {_sentence(message)}")
    if found.get("reason") == Reason.BACKOFF_LIMIT_EXCEEDED:
        tries = (job.get("status") or {}).get("failed", len(pods))
        text = f"The {who} was started {_times(tries)} in vain, which is all that the job's spec.backoffLimit allows."
        return Ending(
            False, last.reason or Reason.BACKOFF_LIMIT_EXCEEDED, f"{text} At last it {last.message}"
        )
    return Ending(False, last.reason or Reason.INTERNAL_ERROR, f"The {who} {last.message}")


def trouble(job: Object | None, pods: Sequence[Object], events: Sequence[Object]) -> Trouble | None:
    """What keeps the Job's pod from running; None while all is well or on its way.

    :param pods: those that the Job made.
    :param events: those about the Job and its pods; they expire, so what they said may be gone.
    """
    if job is None:
        return None
    current = max((pod for pod in pods if alive([pod])), key=_created, default=None)
    if current is None:
        return _not_created(job, pods, events) or _failed_before(job, pods)
    if is_deleted(current):
        return _disrupted(current)
    if _runs(current):
        return None if holds(current, "Ready") else _node_lost(current)
    about = [event for event in events if event["involvedObject"].get("uid") == current["metadata"]["uid"]]
    return _pending(job, current, about) or _failed_before(job, pods)


def _pending(job: Object, pod: Object, events: Sequence[Object]) -> Trouble | None:
    who = _component(job)
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(job, pod, str(scheduled.get("message") or "no node fits"))
    waiting = _state(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), str(waiting.get("message") or "")
    if reason in _PULL:
        return _no_image(job, pod, reason, message)
    if reason in _CREATE:
        return _not_started(job, message or reason, _CHECK if _begins(pod) else who)
    said = [e for e in events if e.get("reason") in _MOUNT and not any(p in e["message"] for p in _PASSING)]
    if said:
        return _not_started(job, max(said, key=_last_seen)["message"], who)
    sandbox = [event for event in events if event.get("reason") == "FailedCreatePodSandBox"]
    if sandbox:
        text = _sentence(max(sandbox, key=_last_seen)["message"])
        node = pod["spec"].get("nodeName", "its node")
        return Trouble(
            Reason.POD_REFUSED, f"Node {node} cannot start the {who}: {text} Look at that node's runtime."
        )
    return None


def _unschedulable(job: Object, pod: Object, message: str) -> Trouble:
    who, text = _component(job), _sentence(message)
    fields = REMEDIES[who]
    if missing := _NO_CLAIM.search(message):
        what = f"The {who} waits for PersistentVolumeClaim {missing[1]}, which does not exist."
        remedy = (
            f"Create it in namespace {ref_of(job).namespace}, or correct the volume in {fields['dataset']}."
        )
        return Trouble(Reason.VOLUME_MISSING, f"{what} {remedy}")
    if "unbound immediate PersistentVolumeClaims" in message:
        remedy = f"Name a StorageClass that makes volumes in {fields['storage']}, or look why the claim is not bound."
        return Trouble(Reason.VOLUME_MISSING, f"The {who} waits for a volume: {text} {remedy}")
    devices = ", ".join(f"{amount} {name}" for name, amount in _devices(pod).items())
    asks = f", which asks for {devices}" if devices else ""
    remedy = f"Free or add a node, or {_do(job, 'resources')}."
    return Trouble(Reason.UNSCHEDULABLE, f"No node can take the {who}{asks}: {text} {remedy}")


def _no_image(job: Object, pod: Object, reason: str, message: str) -> Trouble:
    who, containers = ("guard", "initContainers") if _begins(pod) else (_component(job), "containers")
    image, remedy = pod["spec"][containers][0]["image"], _do(job, "image", _CHECK if _begins(pod) else who)
    if reason == "InvalidImageName":
        text = f"The {who}'s image {image} is no image reference; {remedy}."
        return Trouble(Reason.IMAGE_NOT_FOUND, text, fatal=True)
    if reason == "ErrImageNeverPull":
        text = f"The {who}'s image {image} is not on the node, and its policy is not to pull. Load it there."
        return Trouble(Reason.IMAGE_NOT_FOUND, text)
    # While the kubelet waits between two tries it quotes the failure of the last one: one message for both.
    cause = message.partition("ErrImagePull: ")[2] or message
    why = "" if cause.startswith("Back-off") or not cause else f": {_sentence(cause)}"
    remedy = f"Push the image, give the namespace the right to pull it, or {remedy}."
    return Trouble(Reason.IMAGE_NOT_FOUND, f"The {who}'s image {image} cannot be pulled{why or '.'} {remedy}")


def _not_started(job: Object, message: str, who: str) -> Trouble:
    """What kubelets say when something that a container needs is not there.

    :param who: component, or look at the network.
    """
    text = _sentence(message)
    lower = message.lower()
    if "not found" in lower and ("secret " in lower or "configmap " in lower):
        what = "Secret" if "secret " in lower else "ConfigMap"
        remedy = f"Restore the {what} in namespace {ref_of(job).namespace}."
        return Trouble(Reason.CONFIG_MISSING, f"The {who} cannot start: {text} {remedy}")
    if any(word in lower for word in ("volume", "mount", "subpath", "hostpath")):
        fields = REMEDIES[_component(job)]
        remedy = f"Look at that volume; {fields['dataset']} or {fields['storage']} names it."
        return Trouble(Reason.VOLUME_MISSING, f"The {who} waits for a volume: {text} {remedy}")
    text = text.removesuffix(".")
    return Trouble(Reason.POD_REFUSED, f"The node cannot start the {who}: {text}; {_do(job, 'image', who)}.")


def _not_created(job: Object, pods: Sequence[Object], events: Sequence[Object]) -> Trouble | None:
    """A Job whose pod the API server refuses has no pod to look at: only an Event says so."""
    newest = max((_created(pod) for pod in pods), default="")
    said = [
        event
        for event in events
        if event.get("reason") == "FailedCreate"
        and event["involvedObject"].get("uid") == job["metadata"]["uid"]
        and _last_seen(event) > newest
    ]
    if not said:
        return None
    message = max(said, key=_last_seen)["message"].removeprefix("Error creating: ")
    remedy = f"Change the rules of namespace {ref_of(job).namespace}, or {_do(job, 'resources')}."
    if "PodSecurity" in message:
        remedy = (
            "A hostPath volume needs a namespace that permits it; everything else of the pod is restricted."
        )
    elif "exceeded quota" in message or "failed quota" in message:
        remedy = f"Raise the quota, or {_do(job, 'resources')}."
    return Trouble(
        Reason.POD_REFUSED, f"The cluster refuses the {_component(job)}'s pod: {_sentence(message)} {remedy}"
    )


def _failed_before(job: Object, pods: Sequence[Object]) -> Trouble | None:
    last = _last_failure(pods)
    if last is None:
        return None
    if last.disruption:
        return Trouble(last.disruption, f"The {_component(job)} {last.message} It starts again.")
    text = f"The {_component(job)} {last.message}"
    used, tries = _tries(job, pods)
    if used >= tries:
        return Trouble(Reason(last.reason or Reason.BACKOFF_LIMIT_EXCEEDED), text)
    text += f" It is tried again: {used} of {tries} tries are used up."
    if last.reason != Reason.OUT_OF_MEMORY:
        return Trouble(Reason.RESTARTING, text)
    if _component(job) == "trainer":
        text += f" A Silo that is edited counts from when Job {ref_of(job).name} is deleted."
    return Trouble(Reason.OUT_OF_MEMORY, text)


def _tries(job: Object, pods: Sequence[Object]) -> tuple[int, int]:
    """How often the Job's pods have failed, and how often they may; the Job itself says so a moment later."""
    failed = [pod for pod in pods if _phase(pod) == "Failed"]
    used, tries = (
        max((job.get("status") or {}).get("failed", 0), len(failed)),
        job["spec"]["backoffLimit"] + 1,
    )
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    final = {code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]}
    codes = {(_state(pod).get("terminated") or {}).get("exitCode") for pod in failed}
    return (tries if codes & final else used), tries


def _disrupted(pod: Object) -> Trouble | None:
    """A pod on its way out; without a disruption that is the Job's own doing."""
    failure = failure_of(pod, REMEDIES[_component(pod)]["memory"])
    if failure is None or failure.disruption is None:
        return None
    text = f"The {_component(pod)} {failure.message} It starts again when the old pod is gone."
    return Trouble(failure.disruption, text)


def _node_lost(pod: Object) -> Trouble | None:
    """Its container ran when the kubelet last spoke; the control plane has marked it since."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if not statuses or not statuses[0].get("ready"):
        return None
    node = pod["spec"].get("nodeName", "unknown")
    text = f"The {_component(pod)} runs on node {node}, which does not answer. Repair or remove the node."
    return Trouble(Reason.NODE_LOST, text)


def _last_failure(pods: Sequence[Object]) -> Failure | None:
    failed = [pod for pod in pods if _phase(pod) == "Failed"]
    last = max(failed, key=_created, default=None)
    return None if last is None else failure_of(last, REMEDIES[_component(last)]["memory"])


def _do(job: Object, about: str, who: str | None = None) -> str:
    return REMEDIES[who or _component(job)][about].format(
        job=ref_of(job).name, agent=labels_of(job).get(AGENT, "")
    )


def _component(obj: Object) -> str:
    return labels_of(obj)[COMPONENT]


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _runs(pod: Object) -> bool:
    return _phase(pod) == "Running" and not is_deleted(pod)


def _state(pod: Object) -> Mapping[str, Any]:
    """Of the container whose turn it is."""
    name = "initContainerStatuses" if _begins(pod) else "containerStatuses"
    statuses = (pod.get("status") or {}).get(name) or [{}]
    return statuses[0].get("state") or {}


def _begins(pod: Object) -> bool:
    """Whether the pod has a look at the network before it that has not ended well yet."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    ended = [(status.get("state") or {}).get("terminated") or {} for status in statuses]
    return any(end.get("exitCode") != 0 for end in ended)


def _devices(pod: Object) -> Mapping[str, str]:
    """Extended resources, such as GPUs: those with a domain."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return {name: amount for name, amount in limits.items() if "/" in name}


def _created(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def _last_seen(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _sentence(text: str | None) -> str:
    """The words of another component on one line, ending like a sentence."""
    line = " ".join((text or "no reason was given").split())
    return line if line.endswith((".", "!")) else f"{line}."
