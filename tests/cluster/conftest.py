"""A namespace of its own for each test on the cluster, and its story when the test fails."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from hack import operator as fedsilo_operator
from hack.cluster.binaries import programs
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG
from tests.cluster.federation import Federation
from tests.cluster.namespace import Namespace
from tests.terminal import Terminal

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure for the fixtures, and let their stories into the report."""
    report = yield
    if report.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if report.failed and isinstance(value, Namespace | Federation):
                report.sections.append((f"story of {name}", value.story()))
    return report


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """The cluster that `make cluster-up` brought up."""
    if not KUBECONFIG.exists():
        pytest.exit("there is no cluster: run `make cluster-up` first", returncode=2)
    return Kubectl(KUBECONFIG)


@pytest.fixture(scope="session")
def operator(kubectl: Kubectl) -> Namespace:
    """The operator of this tree, which stays when the tests are done; its namespace."""
    fedsilo_operator.install(kubectl)
    return Namespace(kubectl, fedsilo_operator.NAMESPACE)


@pytest.fixture
def terminal(terminal: Terminal) -> Terminal:
    """The same with the cluster's programs and kubeconfig, as docs/cluster.md sets them."""
    path = [str(programs(tool)) for tool in ("helm", "kubernetes")]
    terminal.environment["PATH"] = os.pathsep.join([*path, terminal.environment["PATH"]])
    terminal.environment["KUBECONFIG"] = str(KUBECONFIG)
    return terminal


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A fresh namespace at the restricted Pod Security level."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
    kubectl.apply(content)
    yield Namespace(kubectl, name)
    kubectl.run("delete", "namespace", name, "--wait=false")
