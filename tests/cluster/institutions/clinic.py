"""The institution with a cluster of its own."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG, RUN, qualified_name
from hack.cluster.premises import Premises, of_institution
from hack.cluster.runtime import ctr
from tests.cluster.charts.helm import SILO, Helm, images
from tests.cluster.institutions.hub import Hub
from tests.cluster.namespace import RESTRICTED_LABELS, Namespace, wait_until

NAME = "clinic"
DEFINITIONS = ("silos.fedsilo.io", "siloagents.fedsilo.io")


@dataclass(frozen=True)
class Clinic:
    """Its cluster, for who stands in it: from elsewhere it cannot be reached."""

    premises: Premises
    kubectl: Kubectl
    helm: Helm

    @property
    def containerd(self) -> Path:
        """The socket of its containerd."""
        return RUN.with_name(qualified_name(RUN.name, NAME)) / "containerd.sock"

    def images(self) -> list[str]:
        """Names of the images in its containerd."""
        return ctr("images", "ls", "-q", socket=self.containerd).split()

    def join(self, hub: Hub, silo: Object, invitation: Path, **values: Any) -> None:
        """A namespace and a release in it, and both fingerprints compared by telephone."""
        name, namespace = silo["metadata"]["name"], silo["metadata"]["namespace"]
        metadata = {"name": namespace, "labels": RESTRICTED_LABELS}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.release("install", silo, invitation, **values)
        there = Namespace(hub.kubectl, namespace)
        enrolment = wait_until(
            lambda: (there.get("silo", name).get("status") or {}).get("enrolment"), "the clinic's enrolment"
        )
        hub.accept(there, name, enrolment["fingerprint"])

    def release(
        self, verb: str, silo: Object, invitation: Path, *, chart: Path = SILO, **values: Any
    ) -> None:
        """`helm install` or `upgrade` as the clinic's platform team does it, until it is ready."""
        roles = {role: image for role, image in images()["images"].items() if role != "aggregator"}
        name, namespace = silo["metadata"]["name"], silo["metadata"]["namespace"]
        self.helm.run(
            *(verb, name, str(chart), "-n", namespace, "--wait", "--timeout", "2m", "-f", str(invitation)),
            values={**copy.deepcopy(silo["spec"]), "images": roles, **values},
            timeout=150,
        )

    def clear(self) -> None:
        """Take the definitions away, with all that is of them: they belong to the release that brought them."""
        self.kubectl.run("delete", "crd", *DEFINITIONS, "--ignore-not-found", "--wait")


def clinic() -> Clinic:
    """The cluster that is up."""
    premises = of_institution(NAME)
    kubeconfig = Path(
        KUBECONFIG.parent.with_name(qualified_name(KUBECONFIG.parent.name, NAME)), KUBECONFIG.name
    )
    within = tuple(premises.command())
    return Clinic(premises, Kubectl(kubeconfig, within=within), Helm(kubeconfig, within))
