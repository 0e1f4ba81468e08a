"""The operator as a release, for the tests of several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.cluster.kubectl import Kubectl
from hack.operator import NAMESPACE, install, uninstall
from tests.cluster import operator_lock
from tests.cluster.charts.helm import images
from tests.cluster.charts.release import GATEWAY, HELM, release
from tests.cluster.namespace import Namespace


@pytest.fixture(scope="package")
def released_operator(kubectl: Kubectl, installed_operator: Namespace) -> Iterator[Namespace]:
    """The operator as a release, in place of the one that the other tests share."""
    with operator_lock.reserve_operator():
        uninstall(kubectl)
        try:
            kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            kubectl.apply(GATEWAY.secret())
            release("install", **images(), gateway=GATEWAY.values())
            yield installed_operator
        finally:
            HELM.run("uninstall", "fedsilo", "-n", NAMESPACE, "--wait")
            kubectl.run("delete", "namespace", NAMESPACE, "--wait")
            uninstall(kubectl)
            install(kubectl)
