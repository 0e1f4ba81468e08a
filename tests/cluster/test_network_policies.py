"""That a NetworkPolicy really blocks, everywhere, and allows what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX
from tests.cluster import outside
from tests.cluster.namespace import Namespace, fresh_namespace, pod, wait_until
from tests.cluster.reach import Destination, api_servers, name_servers, reached_destinations
from tests.cluster.test_workloads import ENDLESS_COMMAND, serve_text


def reaches(namespace: Namespace, destination: Destination) -> bool:
    """Whether the client gets a connection."""
    return bool(reached_destinations(namespace, "client", {"it": destination}))


def policy(name: str, pods: dict[str, str], **spec: object) -> Object:
    """A NetworkPolicy for the pods with these labels."""
    content = {"podSelector": {"matchLabels": pods}, **spec}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return kind | {"metadata": {"name": name}, "spec": content}


@pytest.fixture(scope="module")
def shared_namespace(kubectl: Kubectl) -> Iterator[Namespace]:
    """A namespace with a client and a server, in which one policy at a time is in force."""
    with fresh_namespace(kubectl) as namespace:
        namespace.apply(pod("client", TOOLBOX, ENDLESS_COMMAND, labels={"app": "client"}))
        serve_text(namespace, "server", "here")
        namespace.wait("pod", "client", "condition=Ready")
        yield namespace


@pytest.fixture(scope="module")
def destinations(shared_namespace: Namespace, kubectl: Kubectl) -> Iterator[dict[str, Destination]]:
    """Every kind of destination that a pod could try to reach."""
    with outside.outside_host():
        yield {
            "a pod": Destination(str(shared_namespace.get("pod", "server")["status"]["podIP"]), 8000),
            **api_servers(kubectl),
            **name_servers(kubectl),
            "the outside": Destination(outside.ADDRESS, outside.PORT),
        }


@pytest.fixture
def open_network(shared_namespace: Namespace, destinations: dict[str, Destination]) -> Namespace:
    """The namespace without any policy."""
    shared_namespace.run("delete", "networkpolicies", "--all")
    wait_until(
        lambda: reached_destinations(shared_namespace, "client", destinations) == set(destinations),
        "everything to be open",
    )
    return shared_namespace


def test_without_a_policy_everything_is_open(
    open_network: Namespace, destinations: dict[str, Destination]
) -> None:
    assert reached_destinations(open_network, "client", destinations) == set(destinations)


def test_a_pod_without_egress_reaches_nothing(
    open_network: Namespace, destinations: dict[str, Destination]
) -> None:
    open_network.apply(policy("silence", {"app": "client"}, policyTypes=["Egress"]))
    wait_until(lambda: not reaches(open_network, destinations["a pod"]), "the policy to take effect")
    assert reached_destinations(open_network, "client", destinations) == set()


def test_a_pod_reaches_only_what_a_policy_allows(
    open_network: Namespace, destinations: dict[str, Destination]
) -> None:
    to_the_server = {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": 8000}]}
    open_network.apply(
        policy("only-the-server", {"app": "client"}, policyTypes=["Egress"], egress=[to_the_server])
    )
    wait_until(lambda: not reaches(open_network, destinations["the outside"]), "the policy to take effect")
    assert reached_destinations(open_network, "client", destinations) == {"a pod"}


def test_a_pod_is_reached_only_by_whom_a_policy_allows(
    open_network: Namespace, destinations: dict[str, Destination]
) -> None:
    open_network.apply(policy("nobody", {"app": "server"}, policyTypes=["Ingress"]))
    wait_until(lambda: not reaches(open_network, destinations["a pod"]), "the policy to take effect")
    from_the_client = {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}
    open_network.apply(
        policy("the-client", {"app": "server"}, policyTypes=["Ingress"], ingress=[from_the_client])
    )
    wait_until(lambda: reaches(open_network, destinations["a pod"]), "the allowing policy to take effect")


def test_a_policy_made_before_a_pod_holds_from_its_first_second(namespace: Namespace) -> None:
    """Not from its first packet: rules follow the pod's address, which is why a trainer looks before it begins."""
    address = serve_text(namespace, "server", "here")
    namespace.apply(policy("silence", {"app": "hasty"}, policyTypes=["Egress"]))
    trying = f"""
import socket, time
time.sleep(1)
end = time.monotonic() + 5
opened = 0
while time.monotonic() < end:
    try:
        socket.create_connection(('{address}', 8000), timeout=0.5).close()
        opened += 1
    except OSError:
        time.sleep(0.05)
print(opened)
"""
    namespace.apply(pod("hasty", TOOLBOX, ("python3", "-c", trying), labels={"app": "hasty"}))
    namespace.wait("pod", "hasty", "jsonpath={.status.phase}=Succeeded")
    assert namespace.logs("hasty") == "0\n"
