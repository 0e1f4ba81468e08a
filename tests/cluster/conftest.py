"""The cluster, the operator on it, a namespace of its own for each test, and its story when the test fails.

The tests run in three workers (`make test-cluster`): a file as a whole in one of them, and so are files that share
something.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from hack import operator as installation
from hack.cluster.binaries import programs
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG
from tests.cluster import operator_lock
from tests.cluster.namespace import Namespace, fresh_namespace
from tests.terminal import Terminal

TESTS_DIR = Path(__file__).parent

LOCK_SECONDS = 900
"""That a test may take in which it may have to wait for the operator."""


GROUPS: Mapping[str, Sequence[str]] = {
    "the operator alone": ("test_consortium", "test_upgrades", "test_kills", "test_rights"),
    "names and ports that the pages name": ("test_quickstart", "test_kubectl", "test_dashboard"),
    "the node's GPUs": ("test_bad_jobs", "test_gpus"),
    "the host outside of the cluster": ("test_isolation", "test_network_policies"),
    "institutions outside of the cluster": tuple(
        path.stem for path in (TESTS_DIR / "institutions").glob("test_*.py")
    ),
    "an API server with the schema": tuple(path.stem for path in (TESTS_DIR / "schema").glob("test_*.py")),
}
"""What files need for themselves, or share: they run one after the other."""


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out groups of files. xdist's own, by mark, does not know the test ids of this pytest."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(Path(nodeid.partition("::")[0]))


def group_of(path: Path) -> str:
    """The group of a file; most are one by themselves."""
    return next((group for group, files in GROUPS.items() if path.stem in files), path.stem)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Distribute tests to workers by group."""
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups into an order: first those that take the operator away.

    The other workers begin with what needs none, so that they do not wait for them; then all share the operator. Of
    equals, groups of several files are first, since they take longest.
    """
    turns: dict[str, int] = {}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        turn = (
            0
            if {"own_operator", "released_operator"} & set(fixtures)
            else 2
            if "installed_operator" in fixtures
            else 1
        )
        group = group_of(item.path)
        turns[group] = turn if turn != 1 else turns.get(group, 1)
        if turn != 1 and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LOCK_SECONDS))
    items.sort(key=lambda item: (turns[group_of(item.path)], group_of(item.path) not in GROUPS))


@runtime_checkable
class WithStory(Protocol):
    """A fixture's value that can say what became of it."""

    def story(self) -> str:
        """What a person would look at after a failure."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure for the fixtures, and let their stories into the report."""
    report = yield
    if report.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if report.failed and isinstance(value, WithStory):
                report.sections.append((f"story of {name}", value.story()))
    return report


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """The cluster that `make cluster-up` brought up."""
    if not KUBECONFIG.exists():
        pytest.exit("there is no cluster: run `make cluster-up` first", returncode=2)
    return Kubectl(KUBECONFIG)


@pytest.fixture(scope="session")
def installed_operator(kubectl: Kubectl) -> Namespace:
    """The operator of this tree, which stays when the tests are done; its namespace."""
    with operator_lock.reserve_operator():
        installation.install(kubectl)
    return Namespace(kubectl, installation.NAMESPACE)


@pytest.fixture(scope="module")
def operator(installed_operator: Namespace) -> Iterator[Namespace]:
    """The operator, shared with the tests of the other workers; its namespace."""
    with operator_lock.share_operator():
        yield installed_operator


@pytest.fixture(scope="module")
def own_operator(installed_operator: Namespace) -> Iterator[Namespace]:
    """The operator for tests that stop it or take it away; the other workers wait with those that need it."""
    with operator_lock.reserve_operator():
        yield installed_operator


@pytest.fixture
def terminal(terminal: Terminal) -> Terminal:
    """A checkout's terminal with the cluster's programs and kubeconfig, as docs/cluster.md sets them."""
    terminal.environment["PATH"] = os.pathsep.join([str(programs()), terminal.environment["PATH"]])
    terminal.environment["KUBECONFIG"] = str(KUBECONFIG)
    return terminal


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[Namespace]:
    """A fresh namespace at the restricted Pod Security level."""
    with fresh_namespace(kubectl) as fresh:
        yield fresh
