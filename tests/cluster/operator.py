"""The operator on the test cluster, installed as the README says: `kubectl apply -k manifests`."""

from __future__ import annotations

import json
from typing import Any

import yaml

from hack.images import reference
from tests.cluster.kubectl import Kubectl, Namespace, Object
from tests.paths import ROOT

SYSTEM = "fedsilo-system"
ROLES = ("aggregator", "guard", "trainer")


def install(kubectl: Kubectl) -> Namespace:
    """Bring the operator up with the images of this tree; its namespace."""
    written = yaml.safe_load_all(kubectl.run("kustomize", str(ROOT / "manifests")))
    kubectl.apply(*(_with_local_images(item) for item in written))
    system = Namespace(kubectl, SYSTEM)
    system.run("rollout", "status", "deployment/fedsilo-operator", "--timeout=120s", timeout=130)
    return system


def uninstall(kubectl: Kubectl) -> None:
    """Take the operator away, the definitions of its resources with all objects included."""
    kubectl.run("delete", "-k", str(ROOT / "manifests"), "--ignore-not-found", "--wait", timeout=180)


def leader(system: Namespace) -> str:
    """Name of the pod that leads; the identity goes on with what makes it unique."""
    return str(system.get("lease", "fedsilo-operator")["spec"]["holderIdentity"]).partition("_")[0]


def _with_local_images(item: Object) -> Object:
    if item["kind"] != "Deployment":
        return item
    (container,) = item["spec"]["template"]["spec"]["containers"]
    container["image"] = reference("operator")
    container["imagePullPolicy"] = "IfNotPresent"
    rest = [argument for argument in container["args"] if "-image=" not in argument]
    container["args"] = [*(f"--{role}-image={reference(role)}" for role in ROLES), *rest]
    return item


def documents(name: str) -> list[Any]:
    """The documents of an example."""
    return list(yaml.safe_load_all((ROOT / "examples" / name).read_text()))


def moved(objects: list[Object], suffix: str) -> list[Object]:
    """The same federation in namespaces of its own, so that tests do not meet."""
    text = json.dumps(objects)
    for item in objects:
        if item["kind"] == "Namespace":
            name = item["metadata"]["name"]
            text = text.replace(f'"{name}"', f'"{name}-{suffix}"')
    return list(json.loads(text))
