"""That a NetworkPolicy really blocks, everywhere, and allows what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import outside
from tests.cluster.images import TOOLBOX
from tests.cluster.kubectl import Kubectl, Namespace, Object, pod, until
from tests.cluster.test_workloads import FOREVER, served

CONNECT = """
import socket, sys
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
try:
    socket.create_connection((host, port), timeout=seconds).close()
    print("open")
except OSError:
    print("closed")
"""


def reaches(namespace: Namespace, address: str, port: int) -> bool:
    """Whether the client gets a connection; a policy drops, so silence is the answer to wait for."""
    said = namespace.execute("client", "python3", "-c", CONNECT, address, str(port), "2")
    return said.strip() == "open"


def resolves(namespace: Namespace, name: str) -> bool:
    """Whether the client gets an address for a name."""
    script = f"timeout 5 getent hosts {name} > /dev/null && echo found || echo nothing"
    return namespace.execute("client", "sh", "-c", script).strip() == "found"


def policy(name: str, pods: dict[str, str], **spec: object) -> Object:
    """A NetworkPolicy for the pods with these labels."""
    content = {"podSelector": {"matchLabels": pods}, **spec}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return kind | {"metadata": {"name": name}, "spec": content}


@pytest.fixture
def places(namespace: Namespace, kubectl: Kubectl) -> Iterator[dict[str, tuple[str, int]]]:
    """A client pod, and every kind of place that a pod could try to reach."""
    server = served(namespace, "server", "here")
    namespace.apply(pod("client", TOOLBOX, FOREVER, labels={"app": "client"}))
    namespace.wait("pod", "client", "condition=Ready")
    api = kubectl.get("-n", "default", "service", "kubernetes")["spec"]["clusterIP"]
    (node,) = kubectl.get("nodes")["items"]
    host = next(item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP")
    slices = kubectl.get("-n", "default", "endpointslices", "-l", "kubernetes.io/service-name=kubernetes")
    port = int(slices["items"][0]["ports"][0]["port"])
    with outside.outside_host():
        yield {
            "a pod": (server, 8000),
            "the API server's Service": (api, 443),
            "the API server on its host": (host, port),
            "the outside": (outside.ADDRESS, outside.PORT),
        }


def test_without_a_policy_everything_is_open(
    namespace: Namespace, places: dict[str, tuple[str, int]]
) -> None:
    assert {place: reaches(namespace, *where) for place, where in places.items()} == dict.fromkeys(
        places, True
    )
    assert resolves(namespace, "kubernetes.default.svc.cluster.local")


def test_a_pod_without_egress_reaches_nothing(
    namespace: Namespace, places: dict[str, tuple[str, int]]
) -> None:
    namespace.apply(policy("silence", {"app": "client"}, policyTypes=["Egress"]))
    until(lambda: not reaches(namespace, *places["a pod"]), "the policy to take effect")
    assert {place: reaches(namespace, *where) for place, where in places.items()} == dict.fromkeys(
        places, False
    )
    assert not resolves(namespace, "kubernetes.default.svc.cluster.local")


def test_a_pod_reaches_only_what_a_policy_allows(
    namespace: Namespace, places: dict[str, tuple[str, int]]
) -> None:
    to_the_server = {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": 8000}]}
    namespace.apply(
        policy("only-the-server", {"app": "client"}, policyTypes=["Egress"], egress=[to_the_server])
    )
    until(lambda: not reaches(namespace, *places["the outside"]), "the policy to take effect")
    reached = {place for place, where in places.items() if reaches(namespace, *where)}
    assert reached == {"a pod"}


def test_a_pod_is_reached_only_by_whom_a_policy_allows(
    namespace: Namespace, places: dict[str, tuple[str, int]]
) -> None:
    namespace.apply(policy("nobody", {"app": "server"}, policyTypes=["Ingress"]))
    until(lambda: not reaches(namespace, *places["a pod"]), "the policy to take effect")
    from_the_client = {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}
    namespace.apply(
        policy("the-client", {"app": "server"}, policyTypes=["Ingress"], ingress=[from_the_client])
    )
    until(lambda: reaches(namespace, *places["a pod"]), "the allowing policy to take effect")


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
