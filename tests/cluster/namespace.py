"""One namespace of a cluster with a few verbs, waiting for a condition, and a pod that may run in it."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fedsilo.api.observed import Object
from hack.cluster.kubectl import PATIENCE_SECONDS, Kubectl, KubectlError
from tests.cluster import reading

T = TypeVar("T")

MAX_PAUSE_SECONDS = 1.0
"""Longest pause between two questions."""


@dataclass(frozen=True)
class Namespace:
    """A test's own namespace."""

    kubectl: Kubectl
    name: str

    def apply(self, *objects: Object) -> None:
        """Apply objects in this namespace."""
        here = [item | {"metadata": {"namespace": self.name, **item["metadata"]}} for item in objects]
        self.kubectl.apply(*here)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = PATIENCE_SECONDS) -> str:
        """kubectl in this namespace; its standard output."""
        return self.kubectl.run("-n", self.name, *arguments, stdin=stdin, timeout=timeout)

    def get(self, kind: str, name: str) -> Object:
        """Read one object of the namespace."""
        found = self.find(kind, name)
        if found is None:
            raise KubectlError(f'{kind} "{name}" not found in namespace {self.name}')
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """One object, None when there is none."""
        if self._reads(kind):
            return reading.read(self.kubectl.kubeconfig, kind, self.name, name)
        return self.kubectl.find("-n", self.name, kind, name)

    def select(self, kind: str, labels: str = "", *, fields: str = "") -> list[Object]:
        """Objects by label selector and field selector; several kinds are separated by commas."""
        if self._reads(kind):
            selectors = {"labelSelector": labels, "fieldSelector": fields}
            return reading.select(self.kubectl.kubeconfig, kind, self.name, selectors)
        found = self.kubectl.get("-n", self.name, kind, f"--selector={labels}", f"--field-selector={fields}")
        return list(found["items"])

    def _reads(self, kind: str) -> bool:
        return self.kubectl.account is None and not self.kubectl.within and reading.is_readable(kind)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and wait until it is gone."""
        self.run("delete", kind, name, "--ignore-not-found", "--wait")

    def wait(self, kind: str, name: str, condition: str, timeout: float = PATIENCE_SECONDS) -> None:
        """`kubectl wait --for=...`, such as `condition=Complete` or `jsonpath={.status.phase}=Running`."""
        self.run("wait", kind, name, f"--for={condition}", f"--timeout={timeout:.0f}s", timeout=timeout + 10)

    def logs(self, pod: str) -> str:
        """What a pod has printed."""
        return self.run("logs", pod)

    def execute(self, pod: str, *command: str, timeout: float = PATIENCE_SECONDS) -> str:
        """Run a command in a pod; its standard output."""
        return self.run("exec", pod, "--", *command, timeout=timeout)

    @contextmanager
    def forward_port(self, target: str, port: int, local: int | None = None) -> Iterator[int]:
        """Forward a port by `kubectl port-forward`; the local port, any that is free unless `local` is given."""
        command = self.kubectl.command("-n", self.name, "port-forward", target, f"{local or ''}:{port}")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
                assert found, f"port-forward said: {line}{process.stdout.read()}"
                yield int(found[1])
            finally:
                process.terminate()

    def story(self) -> str:
        """What a person would look at after a failure: objects, events, and every pod's state and log."""
        parts = [
            ("objects", "get", "all,pvc,cm,netpol", "-o", "wide"),
            ("events", "get", "events", "--sort-by=.lastTimestamp"),
            ("pods", "describe", "pods"),
        ]
        names = [pod["metadata"]["name"] for pod in self.select("pods")]
        parts += [(f"log of {name}", "logs", name, "--all-containers", "--tail=100") for name in names]
        return "\n".join(f"--- {title}\n{self.say(*command)}" for title, *command in parts)

    def say(self, *arguments: str) -> str:
        """What kubectl says in this namespace, be it that it failed."""
        try:
            return self.run(*arguments)
        except (KubectlError, subprocess.TimeoutExpired) as failed:
            return str(failed)


RESTRICTED_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of a namespace at the restricted Pod Security level."""


@contextmanager
def fresh_namespace(kubectl: Kubectl) -> Iterator[Namespace]:
    """A namespace at the restricted Pod Security level, for as long as the block runs."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": RESTRICTED_LABELS}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        yield Namespace(kubectl, name)
    finally:
        kubectl.run("delete", "namespace", name, "--wait=false")


def wait_until(
    found: Callable[[], T | None],
    what: str,
    timeout: float = PATIENCE_SECONDS,
    *,
    max_pause: float = MAX_PAUSE_SECONDS,
) -> T:
    """Ask again until there is an answer that counts as true.

    What is not there soon is asked for less and less often: some questions are a start of kubectl.

    :param max_pause: seconds between two questions at most.
    """
    end = time.monotonic() + timeout
    pause = 0.1
    while True:
        if answer := found():
            return answer
        assert time.monotonic() < end, f"waited {timeout:.0f} s for {what}"
        time.sleep(pause)
        pause = min(1.5 * pause, max_pause)


def pod(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, Any] | None = None,
    volumes: Mapping[str, Mapping[str, Any]] | None = None,
    **spec: Any,
) -> Object:
    """A pod that passes the restricted Pod Security level.

    :param volumes: where it is mounted -> volume source.
    """
    mounts = {f"volume-{number}": place for number, place in enumerate(volumes or {})}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": dict(resources or {}),
        "volumeMounts": [{"name": name, "mountPath": place} for name, place in mounts.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": name, **(volumes or {})[place]} for name, place in mounts.items()],
            **spec,
        },
    }
