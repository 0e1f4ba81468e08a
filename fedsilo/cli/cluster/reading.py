"""A pod that lives as long as something is read from a volume, and the copy through it."""

from __future__ import annotations

import hashlib
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from fedsilo.api.observed import Object, status_of
from fedsilo.api.text import size
from fedsilo.cli.cluster.federation import COMPONENT, JOB_UID
from fedsilo.cli.cluster.kubectl import Kubectl, failure
from fedsilo.cli.cluster.pods import why_silent
from fedsilo.cli.cluster.program import output, run_program
from fedsilo.cli.cluster.text import plain_line
from fedsilo.errors import FedsiloError

START_SECONDS = 300.0
"""Time in which the pod must run: an image may have to be pulled."""

LIFETIME_SECONDS = 6 * 3600
"""Time after which the cluster ends the pod, should nobody be left to remove it."""

MAX_FAILURES = 5
"""Broken connections in a row, without a byte between them, before the copy is given up."""

UNKNOWN_WRITER: Object = {"securityContext": {"runAsUser": 65_532, "runAsGroup": 65_532}}
"""What is taken of the pod that wrote where it is gone: files are its own, and the images know this user."""

_VOLUME = "/model"
_CONTAINER = "reader"
_CHUNK_BYTES = 1 << 20
_FATAL_REASONS = frozenset(
    {"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"}
)


def reader_pod(job: Object, claim: str, image: str, writer: Object = UNKNOWN_WRITER) -> dict[str, Any]:
    """A pod of the restricted Pod Security level that may read the claim, and do nothing else.

    The job owns it, and it ends by itself: even one that could not be removed does not remain.

    What the platform asks of the aggregator's pod holds for this one, which runs where that one's volume is.

    :param writer: specification of the pod that wrote, whose user and pull secrets it has.
    """
    metadata = job["metadata"]
    template = job.get("spec", {}).get("aggregator", {}).get("podTemplate") or {}
    given = template.get("metadata") or {}
    placement = {name: template[name] for name in ("nodeSelector", "tolerations") if template.get(name)}
    user = {
        name: number
        for name, number in writer.get("securityContext", {}).items()
        if name in ("runAsUser", "runAsGroup")
    }
    pull_secrets = {"imagePullSecrets": writer["imagePullSecrets"]} if "imagePullSecrets" in writer else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-model-{secrets.token_hex(3)}",
            "namespace": metadata["namespace"],
            "annotations": given.get("annotations") or {},
            "labels": {
                **(given.get("labels") or {}),
                "app.kubernetes.io/managed-by": "kubectl-fedsilo",
                COMPONENT: "model-reader",
                JOB_UID: metadata["uid"],
            },
            "ownerReferences": [
                {key: job[key] for key in ("apiVersion", "kind")}
                | {key: metadata[key] for key in ("name", "uid")}
            ],
        },
        "spec": {
            **pull_secrets,
            **placement,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFETIME_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                **user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": _CONTAINER,
                    "image": image,
                    "command": ["sleep", str(LIFETIME_SECONDS)],
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"cpu": "1", "memory": "128Mi"},
                    },
                    "volumeMounts": [{"name": "model", "mountPath": _VOLUME, "readOnly": True}],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [
                {"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
            ],
        },
    }


@dataclass(frozen=True)
class Copy:
    """Size in bytes and SHA-256 digest of a file copied from a job's volume."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ReaderPod:
    """A running pod that reads a job's volume, through `kubectl exec`."""

    kubectl: Kubectl
    name: str
    namespace: str

    def content(self, path: str) -> bytes:
        """The content of a small file."""
        return self.kubectl.call(*self._arguments("cat", f"{_VOLUME}/{path}"))

    def names(self) -> list[str]:
        """Names of what is in the volume."""
        return self.kubectl.call(*self._arguments("ls", "-1", _VOLUME)).decode(errors="replace").splitlines()

    def copy(self, path: str, target: Path) -> Copy:
        """Copy a file of any size. A connection that breaks is taken up again where it broke.

        :raises FedsiloError: when it breaks again and again.
        """
        source = f"{_VOLUME}/{path}"
        total = int(self.kubectl.call(*self._arguments("stat", "-L", "-c", "%s", source)))
        digest, failures, said = hashlib.sha256(), 0, b""
        with target.open("wb") as file:
            while (have := file.tell()) < total and failures < MAX_FAILURES:
                said = self._stream(
                    self._arguments("tail", "-c", f"+{have + 1}", source), file, digest, total
                )
                failures = 0 if file.tell() > have else failures + 1
        if have < total:
            reason = failure(["exec"], said)
            raise FedsiloError(f"the copy broke off after {have:,} of {total:,} bytes: {reason}; try again")
        return Copy(have, digest.hexdigest())

    def _arguments(self, *command: str) -> list[str]:
        return ["exec", self.name, "--namespace", self.namespace, f"--container={_CONTAINER}", "--", *command]

    def _stream(self, arguments: list[str], file: BinaryIO, digest: Any, total: int) -> bytes:
        """Append the command's output to the file; returns its standard error."""
        command = self.kubectl.command(*arguments)
        with tempfile.TemporaryFile() as errors:
            with run_program(command, stdin=subprocess.DEVNULL, stderr=errors) as process:
                try:
                    for piece in output(process, _CHUNK_BYTES):
                        file.write(piece)
                        digest.update(piece)
                        _show(file.tell(), total)
                    process.wait()
                finally:
                    _show(None, total)
            errors.seek(0)
            return errors.read()


def _show(have: int | None, total: int) -> None:
    """Progress on a terminal; None wipes it away."""
    if sys.stderr.isatty():
        text = "" if have is None else f"{size(have)} of {size(total)}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


@contextmanager
def reading(kubectl: Kubectl, pod: dict[str, Any]) -> Iterator[ReaderPod]:
    """Run the pod and yield it once it runs; it is removed at every end of this process that can be noticed.

    :raises FedsiloError: when it does not come to run.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    ends = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        kubectl.call("create", "--filename=-", given=json.dumps(pod).encode())
        _await_running(kubectl, name, namespace)
        yield ReaderPod(kubectl, name, namespace)
    finally:
        # A second Ctrl-C must reach neither us nor the kubectl that removes the pod.
        ends[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        _remove(kubectl, name, namespace)
        for number, before in ends.items():
            signal.signal(number, before)


def _remove(kubectl: Kubectl, name: str, namespace: str) -> None:
    """Delete the reader pod without raising: a failure is printed, and hides no earlier error."""
    place = ("pod", name, "--namespace", namespace)
    try:
        kubectl.call("delete", *place, "--ignore-not-found", "--wait=false")
    except FedsiloError as error:
        remedy = f"remove it with kubectl delete {' '.join(place)}"
        print(f"fedsilo: pod {name} is still there: {error}; {remedy}", file=sys.stderr)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _await_running(kubectl: Kubectl, name: str, namespace: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        pod = kubectl.get("pod", name, namespace=namespace)
        phase = status_of(pod).get("phase")
        if phase == "Running":
            return
        reason = why_silent(pod) or plain_line(phase)
        fatal = reason.partition(":")[0] in _FATAL_REASONS
        if fatal or phase in ("Failed", "Succeeded") or time.monotonic() > end:
            raise FedsiloError(
                f"pod {name} in namespace {namespace}, which reads the model, does not run: {reason}; mend that, or "
                "name another image with --image"
            )
        time.sleep(1)
