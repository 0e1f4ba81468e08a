"""What keeps the pod of a Job from running, as a diagnosis that a person can act on.

Scheduler, kubelet and Job controller each report it elsewhere: in a pod's conditions, in the state of its container, or
only in an Event. All of that is read here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo_operator.diagnosis.outcome import last_termination
from fedsilo_operator.diagnosis.pods import (
    PodCondition,
    PodPhase,
    alive,
    begins,
    component,
    creation_time,
    phase,
    runs,
    sentence,
    state,
)
from fedsilo_operator.diagnosis.remedies import CHECK, REMEDIES
from fedsilo_operator.diagnosis.termination import termination_of
from fedsilo_operator.limit_range import is_of_limit_range, limit_range_remedy
from fedsilo_operator.objects import AGENT, is_deleted, labels_of, ref_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.suspension import suspender

_PULL = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
_CREATE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MOUNT = {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
"""The scheduler's message about a claim that does not exist."""

_TRANSIENT_MESSAGES = ("failed to sync", "not registered")
"""A kubelet's messages about its own cache being behind: nothing is wrong."""


def diagnose(job: Object | None, pods: Sequence[Object], events: Sequence[Object]) -> Diagnosis | None:
    """What keeps the Job's pod from running; None while all is well or on its way.

    :param pods: those that the Job made.
    :param events: those about the Job and its pods; they expire, so some may be gone.
    """
    if job is None:
        return None
    current = max((pod for pod in pods if alive([pod])), key=creation_time, default=None)
    if (who := suspender(job)) is not None and (current is None or is_deleted(current)):
        return _suspended_diagnosis(job, who)
    if current is None:
        return _not_created(job, pods, events) or _failed_before(job, pods)
    if is_deleted(current):
        return _disruption_diagnosis(current)
    if runs(current):
        return None if holds(current, PodCondition.READY) else _node_lost(current)
    about = [event for event in events if event["involvedObject"].get("uid") == current["metadata"]["uid"]]
    return _pending_diagnosis(job, current, about) or _failed_before(job, pods)


def _pending_diagnosis(job: Object, pod: Object, events: Sequence[Object]) -> Diagnosis | None:
    who = component(job)
    scheduled = condition(pod, PodCondition.SCHEDULED)
    if scheduled is not None and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(job, pod, str(scheduled.get("message") or "no node fits"))
    waiting = state(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), str(waiting.get("message") or "")
    if reason in _PULL:
        return _no_image(job, pod, reason, message)
    if reason in _CREATE:
        return _not_started(job, message or reason, CHECK if begins(pod) else who)
    reported = [
        e
        for e in events
        if e.get("reason") in _MOUNT and not any(p in e["message"] for p in _TRANSIENT_MESSAGES)
    ]
    if reported:
        return _not_started(job, max(reported, key=_last_seen)["message"], who)
    sandbox = [event for event in events if event.get("reason") == "FailedCreatePodSandBox"]
    if sandbox:
        text = sentence(max(sandbox, key=_last_seen)["message"])
        node = pod["spec"].get("nodeName", "its node")
        return Diagnosis(
            Reason.POD_REFUSED, f"Node {node} cannot start the {who}: {text} Look at that node's runtime."
        )
    return None


def _suspended_diagnosis(job: Object, who: str) -> Diagnosis:
    what = f"The {component(job)} waits: {who} has suspended Job {ref_of(job)} (spec.suspend)."
    return Diagnosis(Reason.SUSPENDED_BY, f"{what} It runs as soon as the Job is resumed there.")


def _unschedulable(job: Object, pod: Object, message: str) -> Diagnosis:
    who, text = component(job), sentence(message)
    fields = REMEDIES[who]
    if missing := _NO_CLAIM.search(message):
        what = f"The {who} waits for PersistentVolumeClaim {missing[1]}, which does not exist."
        remedy = (
            f"Create it in namespace {ref_of(job).namespace}, or correct the volume in {fields['dataset']}."
        )
        return Diagnosis(Reason.VOLUME_MISSING, f"{what} {remedy}")
    if "unbound immediate PersistentVolumeClaims" in message:
        remedy = f"Name a StorageClass that makes volumes in {fields['storage']}, or look why the claim is not bound."
        return Diagnosis(Reason.VOLUME_MISSING, f"The {who} waits for a volume: {text} {remedy}")
    devices = ", ".join(f"{amount} {name}" for name, amount in _devices(pod).items())
    asks = f", which asks for {devices}" if devices else ""
    remedy = f"Free or add a node, or {_do(job, 'resources')}."
    return Diagnosis(Reason.UNSCHEDULABLE, f"No node can take the {who}{asks}: {text} {remedy}")


def _no_image(job: Object, pod: Object, reason: str, message: str) -> Diagnosis:
    who, containers = ("guard", "initContainers") if begins(pod) else (component(job), "containers")
    image, remedy = pod["spec"][containers][0]["image"], _do(job, "image", CHECK if begins(pod) else who)
    if reason == "InvalidImageName":
        text = f"The {who}'s image {image} is no image reference; {remedy}."
        return Diagnosis(Reason.IMAGE_NOT_FOUND, text, permanent=True)
    if reason == "ErrImageNeverPull":
        text = f"The {who}'s image {image} is not on the node, and its policy is not to pull. Load it there."
        return Diagnosis(Reason.IMAGE_NOT_FOUND, text)
    # While the kubelet waits between two tries it quotes the failure of the last one: one message for both.
    cause = message.partition("ErrImagePull: ")[2] or message
    why = "" if cause.startswith("Back-off") or not cause else f": {sentence(cause)}"
    remedy = f"Push the image, give the namespace the right to pull it, or {remedy}."
    return Diagnosis(
        Reason.IMAGE_NOT_FOUND, f"The {who}'s image {image} cannot be pulled{why or '.'} {remedy}"
    )


def _not_started(job: Object, message: str, who: str) -> Diagnosis:
    """Diagnosis where the node cannot start a container or mount a volume, from the kubelet's message.

    :param who: component, or the check of the network.
    """
    text = sentence(message)
    lower = message.lower()
    if "not found" in lower and ("secret " in lower or "configmap " in lower):
        what = "Secret" if "secret " in lower else "ConfigMap"
        remedy = f"Restore the {what} in namespace {ref_of(job).namespace}."
        return Diagnosis(Reason.CONFIG_MISSING, f"The {who} cannot start: {text} {remedy}")
    if any(word in lower for word in ("volume", "mount", "subpath", "hostpath")):
        fields = REMEDIES[component(job)]
        remedy = f"Look at that volume; {fields['dataset']} or {fields['storage']} names it."
        return Diagnosis(Reason.VOLUME_MISSING, f"The {who} waits for a volume: {text} {remedy}")
    text = text.removesuffix(".")
    return Diagnosis(
        Reason.POD_REFUSED, f"The node cannot start the {who}: {text}; {_do(job, 'image', who)}."
    )


def _not_created(job: Object, pods: Sequence[Object], events: Sequence[Object]) -> Diagnosis | None:
    """A Job whose pod the API server refuses has no pod to examine: only an Event reports it."""
    newest = max((creation_time(pod) for pod in pods), default="")
    reported = [
        event
        for event in events
        if event.get("reason") == "FailedCreate"
        and event["involvedObject"].get("uid") == job["metadata"]["uid"]
        and _last_seen(event) > newest
    ]
    if not reported:
        return None
    message = max(reported, key=_last_seen)["message"].removeprefix("Error creating: ")
    remedy = f"Change the rules of namespace {ref_of(job).namespace}, or {_do(job, 'resources')}."
    if "PodSecurity" in message:
        remedy = (
            "A hostPath volume needs a namespace that permits it; everything else of the pod is restricted."
        )
    elif "exceeded quota" in message or "failed quota" in message:
        remedy = f"Raise the quota, or {_do(job, 'resources')}."
    elif is_of_limit_range(message):
        remedy = limit_range_remedy(ref_of(job).namespace, _do(job, "resources"))
    return Diagnosis(
        Reason.POD_REFUSED, f"The cluster refuses the {component(job)}'s pod: {sentence(message)} {remedy}"
    )


def _failed_before(job: Object, pods: Sequence[Object]) -> Diagnosis | None:
    last = last_termination(pods)
    if last is None:
        return None
    if last.disruption:
        return Diagnosis(last.disruption, f"The {component(job)} {last.message} It starts again.")
    text = f"The {component(job)} {last.message}"
    used, tries = _tries(job, pods)
    if used >= tries:
        return Diagnosis(Reason(last.reason or Reason.BACKOFF_LIMIT_EXCEEDED), text)
    text += f" It is tried again: {used} of {tries} tries are used up."
    if last.reason != Reason.OUT_OF_MEMORY:
        return Diagnosis(Reason.RESTARTING, text)
    if component(job) == "trainer":
        text += f" A Silo that is edited counts from when Job {ref_of(job).name} is deleted."
    return Diagnosis(Reason.OUT_OF_MEMORY, text)


def _tries(job: Object, pods: Sequence[Object]) -> tuple[int, int]:
    """How often the Job's pods have failed, and how often they may; the Job's own count follows a moment later."""
    failed = [pod for pod in pods if phase(pod) == PodPhase.FAILED]
    used, tries = (
        max(status_of(job).get("failed", 0), len(failed)),
        job["spec"]["backoffLimit"] + 1,
    )
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    permanent = {
        code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]
    }
    codes = {(state(pod).get("terminated") or {}).get("exitCode") for pod in failed}
    return (tries if codes & permanent else used), tries


def _disruption_diagnosis(pod: Object) -> Diagnosis | None:
    """A pod on its way out; without a disruption, the Job itself removes it."""
    failure = termination_of(pod, REMEDIES[component(pod)]["memory"])
    if failure is None or failure.disruption is None:
        return None
    text = f"The {component(pod)} {failure.message} It starts again when the old pod is gone."
    return Diagnosis(failure.disruption, text)


def _node_lost(pod: Object) -> Diagnosis | None:
    """Its container ran when the kubelet last spoke; the control plane has marked it since."""
    statuses = status_of(pod).get("containerStatuses") or ()
    if not statuses or not statuses[0].get("ready"):
        return None
    node = pod["spec"].get("nodeName", "unknown")
    text = f"The {component(pod)} runs on node {node}, which does not answer. Repair or remove the node."
    return Diagnosis(Reason.NODE_LOST, text)


def _devices(pod: Object) -> Mapping[str, str]:
    """Extended resources, such as GPUs: those with a domain."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return {name: amount for name, amount in limits.items() if "/" in name}


def _last_seen(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _do(job: Object, about: str, who: str | None = None) -> str:
    return REMEDIES[who or component(job)][about].format(
        job=ref_of(job).name, agent=labels_of(job).get(AGENT, "")
    )
