"""Federations on the test cluster: an example in namespaces of its own, followed to its end."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.cluster.runtime import ctr
from hack.examples import documents
from tests.cluster.namespace import RESTRICTED_LABELS, Namespace, wait_until
from tests.integration.local.runs import run

END_SECONDS = 420.0
"""Time that a federation of the tests gets on a small machine."""


@dataclass(frozen=True)
class ClusterFederation:
    """One job, its namespace and those of its silos."""

    kubectl: Kubectl
    objects: tuple[Object, ...]

    @property
    def job(self) -> Object:
        """The FederatedJob as it was applied."""
        return next(item for item in self.objects if item["kind"] == "FederatedJob")

    @property
    def home(self) -> Namespace:
        """Namespace of the job."""
        return Namespace(self.kubectl, self.job["metadata"]["namespace"])

    def silo_object(self, name: str) -> Object:
        """The Silo as it was written."""
        return next(
            item for item in self.objects if item["kind"] == "Silo" and item["metadata"]["name"] == name
        )

    def silo(self, name: str) -> Namespace:
        """Namespace of the silo."""
        return Namespace(self.kubectl, self.silo_object(name)["metadata"]["namespace"])

    @property
    def namespaces(self) -> list[Namespace]:
        """Every namespace of the federation's objects."""
        return [
            Namespace(self.kubectl, item["metadata"]["name"])
            for item in self.objects
            if item["kind"] == "Namespace"
        ]

    def apply(self) -> None:
        """`kubectl apply` of everything."""
        self.kubectl.apply(*self.objects)

    def observed_job(self) -> Object:
        """The FederatedJob as it is now."""
        return self.home.get("federatedjob", self.job["metadata"]["name"])

    def status(self) -> Mapping[str, Any]:
        """Status of the FederatedJob; empty before the operator has looked."""
        return dict(self.observed_job().get("status") or {})

    def condition(self, name: str) -> Mapping[str, Any]:
        """One of its conditions; empty while there is none."""
        return _condition(self.status(), name)

    def wait_complete(self, timeout: float = END_SECONDS) -> Mapping[str, Any]:
        """Wait until it is Complete; its status."""
        end = time.monotonic() + timeout
        while _condition(status := self.status(), "Complete").get("status") != "True":
            failed = _condition(status, "Failed")
            assert failed.get("status") != "True", f"the job failed: {failed}"
            assert time.monotonic() < end, f"not complete after {timeout:.0f} s: {status}"
            time.sleep(0.5)
        return status

    def round_reached(self, number: int) -> None:
        """Wait until so many rounds are complete."""
        wait_until(
            lambda: self.status().get("round", 0) >= number, f"round {number}", END_SECONDS, max_pause=0.3
        )

    def pod(self, namespace: Namespace, component: str, *, besides: str | None = None) -> str:
        """Name of the running pod of a component.

        :param besides: one that was there before, so that another must come.
        """

        def running() -> str | None:
            pods = namespace.select("pods", f"app.kubernetes.io/component={component}")
            names = {item["metadata"]["name"] for item in pods if _runs(item)} - {besides}
            return next(iter(names), None)

        other = f" other than {besides}" if besides else ""
        return wait_until(running, f"a running {component}{other} in {namespace.name}", END_SECONDS)

    def remove(self, *, wait: bool = False) -> None:
        """Delete everything, jobs first: their finalizers need the operator.

        :param wait: until the namespaces are gone, too.
        """
        self.home.run("delete", "federatedjobs", "--all", "--wait", timeout=90)
        names = [namespace.name for namespace in self.namespaces]
        self.kubectl.run("delete", "namespace", *names, "--ignore-not-found", f"--wait={str(wait).lower()}")

    def story(self) -> str:
        """What a person would look at after a failure."""
        return "\n".join(
            [
                *(each.say("describe", "federatedjobs,siloagents") for each in self.namespaces),
                *(each.story() for each in self.namespaces),
            ]
        )


def _condition(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions", ()) if item["type"] == name), {})


def example(name: str, **spec: Any) -> list[Object]:
    """The documents of an example, with namespaces at the restricted Pod Security level.

    :param spec: parts of the job's spec that replace those of the example, merged one level deep.
    """
    objects = documents(name)
    for item in objects:
        if item["kind"] == "Namespace":
            item["metadata"]["labels"] = RESTRICTED_LABELS
        if item["kind"] == "FederatedJob":
            for field, value in spec.items():
                before = item["spec"].get(field)
                merged = isinstance(before, dict) and isinstance(value, dict)
                item["spec"][field] = before | value if merged else copy.deepcopy(value)
    return objects


def _move_namespaces(objects: list[Object], suffix: str) -> list[Object]:
    """The federation's objects with a suffix at each namespace, so that tests do not meet."""
    text = json.dumps(objects)
    for item in objects:
        if item["kind"] == "Namespace":
            name = item["metadata"]["name"]
            text = text.replace(f'"{name}"', f'"{name}-{suffix}"')
    return list(json.loads(text))


def run_here(objects: list[Object], folder: Path) -> Object:
    """Run the objects' job by `fedsilo run` on this machine; its last word, with model and metrics."""
    manifest = folder / "manifest.yaml"
    manifest.write_text(yaml.safe_dump_all(objects))
    ended = run(manifest, folder / "run")
    assert ended.code == 0, ended.err
    return ended.document


def signal(namespace: Namespace, pod: str, name: str) -> None:
    """Send a signal such as SIGKILL to the process of a pod, past kubelet and API server, as a crash would come."""
    (container,) = namespace.get("pod", pod)["status"]["containerStatuses"]
    ctr("tasks", "kill", "--signal", name, container["containerID"].removeprefix("containerd://"))


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def federation(kubectl: Kubectl, name: str, **spec: Any) -> Iterator[ClusterFederation]:
    """An example in namespaces of its own, not yet applied; everything is deleted afterwards.

    :param spec: see `example`.
    """
    made = ClusterFederation(kubectl, tuple(_move_namespaces(example(name, **spec), uuid.uuid4().hex[:6])))
    try:
        yield made
    except Exception:
        print(made.story())
        raise
    finally:
        made.remove()
