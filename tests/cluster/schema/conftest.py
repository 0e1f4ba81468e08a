"""An API server with everything of `manifests/` applied to it, and jobs on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.namespace import wait_until
from tests.cluster.schema.federation import NAMESPACE, job, operators, patch, report
from tests.paths import ROOT

NAMESPACES = (NAMESPACE, "silo-north", "silo-south", "silo-west", "silo-east", "silo-centre")

_numbers = count()


@pytest.fixture(scope="session")
def api() -> Iterator[Kubectl]:
    """The administrator's kubectl of an API server; every policy is in force."""
    with api_server("schema") as kubeconfig:
        kubectl = Kubectl(kubeconfig)
        kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all")
        for namespace in NAMESPACES:
            kubectl.run("create", "namespace", namespace, "--save-config")
        wait_until(lambda: _is_frozen(kubectl), "the policies")
        yield kubectl


def _is_frozen(kubectl: Kubectl) -> bool:
    kubectl.apply(job("probe"))
    try:
        patch(kubectl, "fj", "probe", {"spec": {"backoffLimit": 1}}, "--dry-run=server")
    except KubectlError:
        kubectl.run("delete", "fj", "probe", "-n", NAMESPACE)
        return True
    return False


@pytest.fixture
def name(api: Kubectl) -> Iterator[str]:
    """The name of a job that the operator has seen."""
    name = f"job-{next(_numbers)}"
    api.apply(job(name))
    report(api, name, operators())
    yield name
    api.run("delete", "fj", name, "-n", "federation")
