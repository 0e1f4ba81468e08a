"""The project's images, as a restricted namespace runs them."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.cluster.images import reference
from tests.cluster.kubectl import Namespace, pod

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
