"""That a NetworkPolicy really blocks, everywhere, and allows what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.cluster.kubectl import Kubectl, Object
from hack.images import TOOLBOX
from tests.cluster import outside
from tests.cluster.namespace import Namespace, pod, until
from tests.cluster.reach import Place, api_servers, name_servers, reached
from tests.cluster.test_workloads import FOREVER, served


def reaches(namespace: Namespace, place: Place) -> bool:
    """Whether the client gets a connection."""
    return bool(reached(namespace, "client", {"it": place}))


def policy(name: str, pods: dict[str, str], **spec: object) -> Object:
    """A NetworkPolicy for the pods with these labels."""
    content = {"podSelector": {"matchLabels": pods}, **spec}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return kind | {"metadata": {"name": name}, "spec": content}


@pytest.fixture
def places(namespace: Namespace, kubectl: Kubectl) -> Iterator[dict[str, Place]]:
    """A client pod, and every kind of place that a pod could try to reach."""
    server = served(namespace, "server", "here")
    namespace.apply(pod("client", TOOLBOX, FOREVER, labels={"app": "client"}))
    namespace.wait("pod", "client", "condition=Ready")
    with outside.outside_host():
        yield {
            "a pod": Place(server, 8000),
            **api_servers(kubectl),
            **name_servers(kubectl),
            "the outside": Place(outside.ADDRESS, outside.PORT),
        }


def test_without_a_policy_everything_is_open(namespace: Namespace, places: dict[str, Place]) -> None:
    assert reached(namespace, "client", places) == set(places)


def test_a_pod_without_egress_reaches_nothing(namespace: Namespace, places: dict[str, Place]) -> None:
    namespace.apply(policy("silence", {"app": "client"}, policyTypes=["Egress"]))
    until(lambda: not reaches(namespace, places["a pod"]), "the policy to take effect")
    assert reached(namespace, "client", places) == set()


def test_a_pod_reaches_only_what_a_policy_allows(namespace: Namespace, places: dict[str, Place]) -> None:
    to_the_server = {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": 8000}]}
    namespace.apply(
        policy("only-the-server", {"app": "client"}, policyTypes=["Egress"], egress=[to_the_server])
    )
    until(lambda: not reaches(namespace, places["the outside"]), "the policy to take effect")
    assert reached(namespace, "client", places) == {"a pod"}


def test_a_pod_is_reached_only_by_whom_a_policy_allows(
    namespace: Namespace, places: dict[str, Place]
) -> None:
    namespace.apply(policy("nobody", {"app": "server"}, policyTypes=["Ingress"]))
    until(lambda: not reaches(namespace, places["a pod"]), "the policy to take effect")
    from_the_client = {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}
    namespace.apply(
        policy("the-client", {"app": "server"}, policyTypes=["Ingress"], ingress=[from_the_client])
    )
    until(lambda: reaches(namespace, places["a pod"]), "the allowing policy to take effect")


def test_a_policy_made_before_a_pod_holds_from_its_first_second(namespace: Namespace) -> None:
    """Not from its first packet: rules follow the pod's address, which is why a trainer looks before it begins."""
    address = served(namespace, "server", "here")
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
