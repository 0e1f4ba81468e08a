"""The cluster, the operator on it, a namespace of its own for each test, and its story when the test fails.

The tests run in two workers, a file as a whole in one of them (`make test-cluster`). Files that need the same thing of
the machine are a group, which stays together: the operator for itself (`operator`), the names and ports of the pages'
examples (`examples`), the GPUs (`gpus`), the host outside of the cluster (`outside`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack import operator as installation
from hack.cluster.binaries import programs
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG, STATE
from tests.cluster.federation import ClusterFederation
from tests.cluster.namespace import Namespace, fresh_namespace
from tests.terminal import Terminal

OPERATOR_LOCK = STATE / "tests.lock"

LOCK_SECONDS = 900
"""That a test may take in which it may have to wait for the operator."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test its group, which is its file unless the file says otherwise, and put the groups into an order.

    First come those that take the operator away. The other worker begins with what needs none, so that it does not
    wait for them; then both share the operator.
    """
    turns: dict[str, int] = {}
    for item in items:
        group = _group(item)
        fixtures = getattr(item, "fixturenames", ())
        turn = 0 if "own_operator" in fixtures else 2 if "installed" in fixtures else 1
        turns[group] = turn if turn != 1 else turns.get(group, 1)
        if turn != 1 and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LOCK_SECONDS))
    items.sort(key=lambda item: turns[_group(item)])


def _group(item: pytest.Item) -> str:
    if (mark := item.get_closest_marker("xdist_group")) is None:
        mark = pytest.mark.xdist_group(item.path.stem).mark
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
    return str(mark.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure for the fixtures, and let their stories into the report."""
    report = yield
    if report.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if report.failed and isinstance(value, Namespace | ClusterFederation):
                report.sections.append((f"story of {name}", value.story()))
    return report


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """The cluster that `make cluster-up` brought up."""
    if not KUBECONFIG.exists():
        pytest.exit("there is no cluster: run `make cluster-up` first", returncode=2)
    return Kubectl(KUBECONFIG)


@pytest.fixture(scope="session")
def installed(kubectl: Kubectl) -> Namespace:
    """The operator of this tree, which stays when the tests are done; its namespace."""
    with _locked(OPERATOR_LOCK, fcntl.LOCK_EX):
        installation.install(kubectl)
    return Namespace(kubectl, installation.NAMESPACE)


@pytest.fixture(scope="module")
def operator(installed: Namespace) -> Iterator[Namespace]:
    """The operator, shared with the tests of the other worker; its namespace."""
    with _locked(OPERATOR_LOCK, fcntl.LOCK_SH):
        yield installed


@pytest.fixture(scope="module")
def own_operator(installed: Namespace) -> Iterator[Namespace]:
    """The operator for tests that stop it or take it away; the other worker waits with those that need it."""
    with _locked(OPERATOR_LOCK, fcntl.LOCK_EX):
        yield installed


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


@pytest.fixture
def terminal(terminal: Terminal) -> Terminal:
    """The same with the cluster's programs and kubeconfig, as docs/cluster.md sets them."""
    path = [str(programs(tool)) for tool in ("helm", "kubernetes")]
    terminal.environment["PATH"] = os.pathsep.join([*path, terminal.environment["PATH"]])
    terminal.environment["KUBECONFIG"] = str(KUBECONFIG)
    return terminal


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[Namespace]:
    """A fresh namespace at the restricted Pod Security level."""
    with fresh_namespace(kubectl) as fresh:
        yield fresh
