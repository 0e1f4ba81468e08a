"""What keeps a pod pending: what scheduler and kubelet say of it, in words that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, condition, holds
from fedsilo_operator.diagnosis.patience import (
    PATIENCE,
    PULL_PATIENCE,
    ROOM_PATIENCE,
    PendingDiagnosis,
    first_seen,
    last_seen,
)
from fedsilo_operator.diagnosis.pods import PodCondition, begins, component, creation_time, sentence, state
from fedsilo_operator.diagnosis.remedies import CHECK, REMEDIES, what_to_do
from fedsilo_operator.objects import ref_of
from fedsilo_operator.reasons import Reason

_PULL = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
_CREATE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MOUNT = {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}

_NO_SUCH_IMAGE = ("not found", "manifest unknown", "does not exist")
"""What registries answer, as runtimes pass it on, where an image's name is wrong."""

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
"""The scheduler's message about a claim that does not exist."""

_TRANSIENT_MESSAGES = ("failed to sync", "not registered")
"""A kubelet's messages about its own cache being behind: nothing is wrong."""


def pending_diagnosis(job: Object, pod: Object, events: Sequence[Object]) -> PendingDiagnosis | None:
    """What keeps a pod pending; None while nothing does.

    :param events: those about this pod.
    """
    scheduled = condition(pod, PodCondition.SCHEDULED) or {}
    if scheduled.get("reason") == "Unschedulable":
        found = _unschedulable(job, pod, str(scheduled.get("message") or "no node fits"))
        return PendingDiagnosis.of(
            found, scheduled.get("lastTransitionTime") or creation_time(pod), ROOM_PATIENCE
        )
    if (found_container := _container_diagnosis(job, pod)) is not None:
        failed = [event for event in events if event.get("reason") == "Failed"]
        patience = _container_patience(state(pod)["waiting"])
        return PendingDiagnosis.of(found_container, first_seen(failed) or creation_time(pod), patience)
    # A kubelet's Events stay after what they say is over, as when a volume is mounted and an image is being pulled.
    if holds(pod, PodCondition.SANDBOX_READY):
        return None
    reported = [
        e
        for e in events
        if e.get("reason") in _MOUNT and not any(p in e["message"] for p in _TRANSIENT_MESSAGES)
    ]
    if reported:
        found = _not_started(job, max(reported, key=last_seen)["message"], component(job))
        return PendingDiagnosis.of(found, first_seen(reported))
    sandbox = [event for event in events if event.get("reason") == "FailedCreatePodSandBox"]
    if sandbox:
        found = _no_sandbox(job, pod, max(sandbox, key=last_seen)["message"])
        return PendingDiagnosis.of(found, first_seen(sandbox))
    return None


def _container_diagnosis(job: Object, pod: Object) -> Diagnosis | None:
    """Why the container whose turn it is has no image, or cannot be made."""
    waiting = state(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), str(waiting.get("message") or "")
    if reason in _PULL:
        return _no_image(job, pod, reason, message)
    if reason in _CREATE:
        return _not_started(job, message or reason, CHECK if begins(pod) else component(job))
    return None


def _container_patience(waiting: Mapping[str, str]) -> timedelta:
    """How long trouble of a container may take to pass: a registry that has no such image will not have it soon."""
    if waiting["reason"] not in _PULL:
        return PATIENCE
    message = waiting.get("message", "").lower()
    return timedelta(0) if any(answer in message for answer in _NO_SUCH_IMAGE) else PULL_PATIENCE


def _no_sandbox(job: Object, pod: Object, message: str) -> Diagnosis:
    node = pod["spec"].get("nodeName", "its node")
    text = f"Node {node} cannot start the {component(job)}: {sentence(message)} Look at that node's runtime."
    return Diagnosis(Reason.POD_REFUSED, text)


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
    remedy = f"Free or add a node, or {what_to_do(job, 'resources')}."
    return Diagnosis(Reason.UNSCHEDULABLE, f"No node can take the {who}{asks}: {text} {remedy}")


def _no_image(job: Object, pod: Object, reason: str, message: str) -> Diagnosis:
    who, containers = ("guard", "initContainers") if begins(pod) else (component(job), "containers")
    image, remedy = (
        pod["spec"][containers][0]["image"],
        what_to_do(job, "image", CHECK if begins(pod) else who),
    )
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
        Reason.POD_REFUSED, f"The node cannot start the {who}: {text}; {what_to_do(job, 'image', who)}."
    )


def _devices(pod: Object) -> Mapping[str, str]:
    """Extended resources, such as GPUs: those with a domain."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return {name: amount for name, amount in limits.items() if "/" in name}
