"""The institution with a cluster of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG, RUN, qualified
from hack.cluster.premises import Premises, of_institution
from hack.cluster.runtime import ctr
from tests.cluster.charts.helm import Helm

NAME = "clinic"
DEFINITIONS = ("silos.fedsilo.io", "siloagents.fedsilo.io")


@dataclass(frozen=True)
class Clinic:
    """Its cluster, for who stands in it: from elsewhere it cannot be reached."""

    premises: Premises
    kubectl: Kubectl
    helm: Helm

    def images(self) -> list[str]:
        """Names of the images in its containerd."""
        return ctr(
            "images", "ls", "-q", socket=RUN.with_name(qualified(RUN.name, NAME)) / "containerd.sock"
        ).split()

    def clear(self) -> None:
        """Take the definitions away, with all that is of them: they belong to the release that brought them."""
        self.kubectl.run("delete", "crd", *DEFINITIONS, "--ignore-not-found", "--wait")


def clinic() -> Clinic:
    """The cluster that is up."""
    premises = of_institution(NAME)
    kubeconfig = Path(KUBECONFIG.parent.with_name(qualified(KUBECONFIG.parent.name, NAME)), KUBECONFIG.name)
    within = tuple(premises.command())
    return Clinic(premises, Kubectl(kubeconfig, within=within), Helm(kubeconfig, within))
