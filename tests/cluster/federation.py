"""Federations on the test cluster: an example in namespaces of its own, followed to its end."""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.cluster.kubectl import Kubectl, Namespace, Object, until
from tests.cluster.operator import documents, moved

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

END = 420.0
"""Seconds that a federation of the tests gets on a small machine."""


@dataclass(frozen=True)
class Federation:
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

    def silo(self, name: str) -> Namespace:
        """Namespace of the silo."""
        found = next(
            item for item in self.objects if item["kind"] == "Silo" and item["metadata"]["name"] == name
        )
        return Namespace(self.kubectl, found["metadata"]["namespace"])

    @property
    def namespaces(self) -> list[Namespace]:
        """All of them."""
        return [
            Namespace(self.kubectl, item["metadata"]["name"])
            for item in self.objects
            if item["kind"] == "Namespace"
        ]

    def apply(self) -> None:
        """`kubectl apply` of everything."""
        self.kubectl.apply(*self.objects)

    def seen(self) -> Object:
        """The FederatedJob as it is now."""
        return self.home.get("federatedjob", self.job["metadata"]["name"])

    def status(self) -> Mapping[str, Any]:
        """Its status; empty before the operator has looked."""
        return dict(self.seen().get("status") or {})

    def condition(self, name: str) -> Mapping[str, Any]:
        """One of its conditions; empty while there is none."""
        found = (item for item in self.status().get("conditions", ()) if item["type"] == name)
        return dict(next(found, {}))

    def ended(self, timeout: float = END) -> Mapping[str, Any]:
        """Wait until it is Complete; its status."""
        end = time.monotonic() + timeout
        while self.condition("Complete").get("status") != "True":
            failed = self.condition("Failed")
            assert failed.get("status") != "True", f"the job failed: {failed}"
            assert time.monotonic() < end, f"not complete after {timeout:.0f} s: {self.status()}"
            time.sleep(1)
        return self.status()

    def round_reached(self, number: int) -> None:
        """Wait until so many rounds are complete."""
        until(lambda: self.status().get("round", 0) >= number, f"round {number}", END)

    def pod(self, namespace: Namespace, component: str) -> str:
        """Name of the running pod of a component."""

        def running() -> str | None:
            pods = namespace.select("pods", f"app.kubernetes.io/component={component}")
            names = [item["metadata"]["name"] for item in pods if item["status"]["phase"] == "Running"]
            return names[0] if names else None

        return until(running, f"a running {component} in {namespace.name}")

    def story(self) -> str:
        """What a person would look at after a failure."""
        return "\n".join(
            [
                self.home.run("describe", "federatedjobs,siloagents"),
                *(each.story() for each in self.namespaces),
            ]
        )


@contextmanager
def federation(kubectl: Kubectl, example: str, **spec: Any) -> Iterator[Federation]:
    """An example in namespaces of its own, not yet applied; everything is deleted afterwards.

    :param spec: parts of the job's spec that replace those of the example, merged one level deep.
    """
    objects = moved(documents(example), uuid.uuid4().hex[:6])
    for item in objects:
        if item["kind"] == "Namespace":
            item["metadata"]["labels"] = RESTRICTED
        if item["kind"] == "FederatedJob":
            for field, value in spec.items():
                before = item["spec"].get(field)
                merged = isinstance(before, dict) and isinstance(value, dict)
                item["spec"][field] = before | value if merged else copy.deepcopy(value)
    made = Federation(kubectl, tuple(objects))
    try:
        yield made
    finally:
        name = made.job["metadata"]["name"]
        made.home.run("delete", "federatedjob", name, "--ignore-not-found", "--wait", timeout=90)
        for namespace in made.namespaces:
            kubectl.run("delete", "namespace", namespace.name, "--ignore-not-found", "--wait=false")
