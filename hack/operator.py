"""The operator on the test cluster, installed from hack/install as the README does it."""

from __future__ import annotations

import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.images import loaded_digests, reference
from hack.paths import ROOT

NAMESPACE = "fedsilo-system"

ROLES = ("aggregator", "guard", "trainer")
"""What the operator starts, each from an image of its own."""


def install(kubectl: Kubectl) -> None:
    """Bring the operator up with the images that the cluster has, and wait until it is ready."""
    kubectl.apply(*(_stamped_deployment(item) for item in rendered_objects(kubectl)))
    rollout = ("rollout", "status", "deployment/fedsilo-operator", "--timeout=120s")
    kubectl.run("-n", NAMESPACE, *rollout, timeout=130)


def rendered_objects(kubectl: Kubectl) -> list[Object]:
    """The objects of hack/install."""
    text = kubectl.run("kustomize", str(ROOT / "hack" / "install"))
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def uninstall(kubectl: Kubectl) -> None:
    """Remove the operator, with the definitions of its resources and all their objects."""
    kubectl.run("delete", "-k", str(ROOT / "manifests"), "--ignore-not-found", "--wait", timeout=180)


def leader(kubectl: Kubectl) -> str:
    """Name of the pod that leads, "" while none does."""
    lease = kubectl.get("-n", NAMESPACE, "lease", "fedsilo-operator")
    return str(lease["spec"].get("holderIdentity", "")).partition("_")[0]  # then what makes it unique


def _stamped_deployment(item: Object) -> Object:
    """A Deployment with its image's digest: an image that is built again keeps its tag, and pods must start anew."""
    if item["kind"] == "Deployment":
        metadata = item["spec"]["template"]["metadata"]
        metadata["annotations"] = {"fedsilo.io/image-digest": loaded_digests()[reference("operator")]}
    return item
