"""The project's images, as a restricted namespace runs them."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from tests.cluster.images import TOOLBOX, reference
from tests.cluster.kubectl import Namespace, pod
from tests.cluster.node.runtime import ctr

ROLES = ("operator", "aggregator", "guard", "trainer")


@pytest.mark.parametrize("role", ROLES)
def test_an_image_starts_under_restricted_and_prints_its_version(namespace: Namespace, role: str) -> None:
    running = pod(role, reference(role), ())
    del running["spec"]["containers"][0]["command"]
    running["spec"]["containers"][0]["args"] = ["--version"]
    namespace.apply(running)
    namespace.wait("pod", role, "jsonpath={.status.phase}=Succeeded")
    assert namespace.logs(role) == f"fedsilo {version('fedsilo')}\n"


@pytest.mark.parametrize("role", ["operator", "guard"])
def test_an_image_that_computes_nothing_has_no_torch(namespace: Namespace, role: str) -> None:
    script = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('sklearn'))"
    namespace.apply(pod(role, reference(role), ("python3", "-c", script)))
    namespace.wait("pod", role, "jsonpath={.status.phase}=Succeeded")
    assert namespace.logs(role) == "None None\n"


def test_the_operators_layers_are_small() -> None:
    """As containerd has them, uncompressed; the toolbox is the base alone."""
    base, operator = layers(TOOLBOX), layers(reference("operator"))
    assert base.keys() < operator.keys()
    assert 0 < sum(size for digest, size in operator.items() if digest not in base) <= 170e6


def layers(name: str) -> dict[str, int]:
    """Bytes of each layer of an image, by digest."""
    rows = [line.split() for line in ctr("images", "ls", f"name=={name}").splitlines()[1:]]
    (digest,) = (row[2] for row in rows)
    manifest = json.loads(ctr("content", "get", digest))
    assert all(layer["mediaType"].endswith(".tar") for layer in manifest["layers"]), "compressed"
    return {layer["digest"]: layer["size"] for layer in manifest["layers"]}
