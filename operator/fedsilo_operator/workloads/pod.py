"""What aggregator, guard and trainer pods have in common: the restricted Pod Security level, and batch/v1 Jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsilo.api.notations import Quantity
from fedsilo.api.observed import Object
from fedsilo.process import TEMPORARY_BYTES
from fedsilo_operator.objects import Ref
from fedsilo_operator.settings import USER

TERMINATION_GRACE_SECONDS = 20
"""Between SIGTERM and SIGKILL: time to finish a write, not a round."""

PORT = 8443
"""Where an aggregator serves."""

LOG_FORMAT = ("--log-format", "json")
"""On a cluster, programs read the logs before people do."""

METRICS_PORT = 8080
"""Where aggregators and guards serve metrics."""

METRICS = {"metrics": METRICS_PORT}

TMP_SIZE = "1Gi"
"""A pod that fills its `/tmp` is evicted before it fills its node's disk; its own limit replaces this one."""

PART_FOR_DATA = 0.9
"""Part of `/tmp` that a program may fill with data: caches and logs need the rest, and a full one is evicted."""

VOLUME = "/var/lib/fedsilo"
CONFIG = "/etc/fedsilo"
CURRENT_POLICY_DIR = "/etc/fedsilo-policy"
SECRETS = "/run/secrets/fedsilo"
AUTHORITIES = "/etc/fedsilo-authorities"
DATA = "/data"
LEDGERS_PATH = "/var/lib/fedsilo-ledgers"


@dataclass(frozen=True)
class Mount:
    """A volume in the pod, and where the container sees it (several places by `subPath`)."""

    name: str
    source: Mapping[str, Any]
    path: str
    sub_path: str | None = None
    read_only: bool = True


@dataclass(frozen=True)
class Container:
    """A container of a pod.

    :param resources: as in core/v1.
    :param ports: by name.
    :param command: instead of the image's own entry point.
    :param environment: variables and their values.
    :param secrets: Secrets all of whose entries are variables.
    :param secret_variables: variables, each from the entry of its name, if there is one -> the Secret.
    """

    name: str
    image: str
    arguments: Sequence[str]
    mounts: Sequence[Mount]
    resources: Mapping[str, Any] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    secret_variables: Mapping[str, str] = field(default_factory=dict)


def pod_spec(
    container: Container,
    *,
    user: int | None = USER,
    init_containers: Sequence[Container] = (),
    beside: Sequence[Mount] = (),
    **extra: Any,
) -> dict[str, Any]:
    """A pod under the restricted Pod Security level, without token or service links unless `extra` has them.

    :param user: user and group of its processes and volumes; None where the platform assigns them.
    :param init_containers: each runs to its end, one after another, before the pod's own container begins.
    :param beside: volumes that no container of the pod sees: it has to run where they are.
    """
    mounts = [*(mount for each in (*init_containers, container) for mount in each.mounts), *beside]
    volumes = {mount.name: {"name": mount.name, **mount.source} for mount in mounts}
    extra |= {"initContainers": list(map(_container, init_containers))} if init_containers else {}
    own = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    tmp = {"name": "tmp", "emptyDir": {"sizeLimit": str(_tmp_size(container.resources))}}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            **own,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(container)],
        "volumes": [*volumes.values(), tmp],
        **extra,
    }


def references(names: Sequence[str]) -> list[dict[str, str]]:
    """Local references, as in core/v1, to objects of these names."""
    return [{"name": name} for name in names]


def room_for_data(resources: Mapping[str, Any]) -> dict[str, str]:
    """The variable that says how many bytes of data a program may write to its `/tmp`.

    :param resources: the container's.
    """
    return {TEMPORARY_BYTES: str(int(PART_FOR_DATA * _tmp_size(resources).value))}


def _tmp_size(resources: Mapping[str, Any]) -> Quantity:
    return Quantity(resources.get("limits", {}).get("ephemeral-storage", TMP_SIZE))


def _container(container: Container) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        **({"command": list(container.command)} if container.command else {}),
        "args": list(container.arguments),
        "volumeMounts": [*map(_volume_mount, container.mounts), {"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    variables: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in container.environment.items()
    ]
    for name, secret in container.secret_variables.items():
        entry = {"name": secret, "key": name, "optional": True}
        variables.append({"name": name, "valueFrom": {"secretKeyRef": entry}})
    if variables:
        content["env"] = variables
    if container.secrets:
        content["envFrom"] = [{"secretRef": {"name": name}} for name in container.secrets]
    if container.resources:
        content["resources"] = dict(container.resources)
    if container.ports:
        content["ports"] = [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in container.ports.items()
        ]
    return content


def _volume_mount(mount: Mount) -> dict[str, Any]:
    content: dict[str, Any] = {"name": mount.name, "mountPath": mount.path, "readOnly": mount.read_only}
    if mount.sub_path:
        content["subPath"] = mount.sub_path
    return content


def batch_job(
    ref: Ref,
    labels: Mapping[str, str],
    pod: Mapping[str, Any],
    *,
    owner: Object,
    backoff_limit: int,
    permanent_exit_codes: Sequence[int],
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Job that runs one pod to its end.

    A disruption (eviction, preemption, drained node) is no failure of the program, so it does not count; a pod is
    replaced only when it is gone, since two would write to one volume.

    :param labels: of the Job and of its pod, and so are the annotations.
    :param permanent_exit_codes: those after which a retry cannot help.
    """
    notes = {"annotations": dict(annotations)} if annotations else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(ref, labels, owner) | notes,
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": backoff_limit,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": sorted(permanent_exit_codes)},
                    },
                ]
            },
            "template": {"metadata": {"labels": dict(labels), **notes}, "spec": dict(pod)},
        },
    }


def metadata(ref: Ref, labels: Mapping[str, str], owner: Object | None) -> dict[str, Any]:
    """Metadata of a child, which is deleted with its owner."""
    content: dict[str, Any] = {"name": ref.name, "namespace": ref.namespace, "labels": dict(labels)}
    if owner is not None:
        content["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return content
