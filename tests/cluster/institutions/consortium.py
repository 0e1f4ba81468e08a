"""One job of three silos: in a namespace of the hub, in a cluster of its own, and on a machine without Kubernetes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedsilo.api.observed import Object
from tests.cluster.federation import ClusterFederation
from tests.cluster.institutions.clinic import Clinic
from tests.cluster.institutions.hub import Hub
from tests.cluster.institutions.lab import Lab
from tests.cluster.namespace import Namespace

NORTH, EAST, SOUTH = "north", "east", "south"
"""The silo in the hub's cluster, that of the clinic, and that of the laboratory."""

SILOS = (NORTH, EAST, SOUTH)

SPEC: Mapping[str, Any] = {
    "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in SILOS]},
    "participation": {"minSilos": len(SILOS), "roundDeadline": "10m"},
}


@dataclass(frozen=True)
class Consortium:
    """The hub and its institutions.

    :param objects: the whole federation, as `fedsilo run` takes it.
    :param folder: for invitations.
    """

    hub: Hub
    clinic: Clinic
    lab: Lab
    objects: ClusterFederation
    folder: Path

    def place(self, name: str) -> Namespace:
        """A silo's namespace at the hub."""
        return self.objects.silo(name)

    @property
    def east(self) -> Namespace:
        """The silo's namespace in the clinic's cluster, which has the same name."""
        return Namespace(self.clinic.kubectl, self.place(EAST).name)

    def prepare(self) -> None:
        """Namespaces at the hub, the silo that is there, and the two institutions, invited and accepted."""
        kubectl = self.hub.kubectl
        kubectl.apply(*(item for item in self.objects.objects if item["kind"] == "Namespace"))
        kubectl.apply(self.objects.silo_object(NORTH))
        fingerprint = self.lab.join(self.invitation(SOUTH), self.objects.silo_object(SOUTH))
        self.hub.accept(self.place(SOUTH), SOUTH, fingerprint)
        self.clinic.join(self.hub, self.objects.silo_object(EAST), self.invitation(EAST))

    def invitation(self, name: str) -> Path:
        """The file that the consortium's office sends."""
        return self.hub.invite(self.place(name), name, self.folder / f"{name}.yaml")

    def install_clinic(self, verb: str, invitation: Path, **values: Any) -> None:
        """`helm install` or `upgrade` as the clinic's platform team does it."""
        self.clinic.release(verb, self.objects.silo_object(EAST), invitation, **values)

    def silo_status(self, name: str) -> Mapping[str, Any]:
        """What the hub says of a silo."""
        return dict((self.place(name).get("silo", name)).get("status") or {})

    @contextmanager
    def cut(self) -> Iterator[None]:
        """The links of both institutions are cut for as long as the block runs."""
        links = (self.clinic.premises, self.lab.place)
        try:
            for link in links:
                link.cut()
            yield
        finally:
            for link in links:
                link.mend()

    def job(
        self, name: str, participation: Mapping[str, Any] | None = None, **training: Any
    ) -> ClusterFederation:
        """A job over all three, not yet applied."""
        job: Object = copy.deepcopy(self.objects.job)
        job["metadata"]["name"] = name
        job["spec"]["training"] |= training
        job["spec"]["participation"] |= participation or {}
        others = (item for item in self.objects.objects if item["kind"] != "FederatedJob")
        return ClusterFederation(self.hub.kubectl, (*others, job))

    def story(self) -> str:
        """What a person would look at after a failure, at every place."""
        return "\n".join(
            [
                self.objects.story(),
                "--- hub",
                self.hub.system.story(),
                "--- clinic",
                self.east.say("describe", "silos,siloagents"),
                self.east.story(),
                "--- laboratory",
                self.lab.log.read_text() if self.lab.log.exists() else "",
                yaml.safe_dump(self.lab.status()) if self.lab.directory.exists() else "",
                *(path.read_text()[-3000:] for path in sorted(self.lab.directory.rglob("logs/*"))),
            ]
        )
