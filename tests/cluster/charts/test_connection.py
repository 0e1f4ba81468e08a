"""`helm test` on the cluster, where pods run and network policies are enforced."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG
from hack.images import reference
from tests.cluster.charts.helm import OPERATOR, SILO, Helm, is_hook, quickstart, render
from tests.cluster.namespace import Namespace, pod
from tests.pages import runs
from tests.terminal import Terminal

HEALTH = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

http.server.HTTPServer(("", 8080), Handler).serve_forever()
"""
"""What stands for an operator: there is one in a cluster, and this test must not meddle with it."""

GUARD = reference("guard")


@runs("charts/fedsilo-silo/README.md", "helm test north -n silo-north")
def test_a_silo_is_seen_and_shut_in(operator: Namespace, namespace: Namespace, terminal: Terminal) -> None:
    """The pods of the test are gone when they have succeeded, and only the release stays."""
    helm = Helm(KUBECONFIG)
    values = quickstart("north")[1] | {"testImage": GUARD}
    helm.run("install", "north", str(SILO), "-n", namespace.name, values=values)
    (command,) = terminal.commands
    said = terminal.type(command, {"silo-north": namespace.name})
    assert said.count("Phase:          Succeeded") == 6
    assert namespace.select("pods") == []
    assert [each["metadata"]["name"] for each in namespace.select("networkpolicies")] == [
        "north-default-deny"
    ]
    helm.run("uninstall", "north", "-n", namespace.name)


def test_a_silo_whose_pods_get_out_is_reported(kubectl: Kubectl, namespace: Namespace) -> None:
    """Without the policy of the chart, which is a network plug-in that knows none, the pod says what is wrong."""
    rendered = render(SILO, quickstart("north")[1] | {"testImage": GUARD}, namespace=namespace.name)
    (isolation,) = (item for item in rendered if item["metadata"]["name"] == "north-test-isolation")
    isolation["spec"]["containers"][0]["args"].append("3")
    kubectl.apply(isolation)
    namespace.wait("pod", "north-test-isolation", "jsonpath={.status.phase}=Failed")
    assert "does not enforce them" in namespace.logs("north-test-isolation")


@pytest.fixture
def stand_in(kubectl: Kubectl, namespace: Namespace) -> list[Object]:
    """The chart's own policy and the objects of its test, with pods behind them that look like operators."""
    image = dict(zip(("repository", "tag"), GUARD.rsplit(":", 1), strict=True))
    rendered = render(OPERATOR, {"images": {"operator": image}}, namespace=namespace.name)
    kubectl.apply(*(item for item in rendered if item["kind"] == "NetworkPolicy" and not is_hook(item)))
    for number in range(2):
        operators = pod(
            f"operator-{number}",
            GUARD,
            ["python", "-c", HEALTH],
            labels={"app.kubernetes.io/name": "fedsilo-operator"},
        )
        operators["spec"]["containers"][0]["ports"] = [{"name": "health", "containerPort": 8080}]
        namespace.apply(operators)
    for number in range(2):
        namespace.wait("pod", f"operator-{number}", "condition=Ready")
    return [item for item in rendered if is_hook(item)]


def test_operators_are_asked_through_their_network_policy(
    kubectl: Kubectl, namespace: Namespace, stand_in: list[Object]
) -> None:
    kubectl.apply(*stand_in)
    namespace.wait("pod", "fedsilo-operator-test", "jsonpath={.status.phase}=Succeeded")
    assert "2 operators are ready" in namespace.logs("fedsilo-operator-test")


def test_others_do_not_get_through_the_operators_network_policy(
    kubectl: Kubectl, namespace: Namespace, stand_in: list[Object]
) -> None:
    """Without the test's own policy the same pod gets no answer: it is that policy that lets it in."""
    others = [item for item in stand_in if item["kind"] != "NetworkPolicy"]
    (asking,) = (item for item in others if item["kind"] == "Pod")
    asking["spec"]["containers"][0]["args"].append("3")
    kubectl.apply(*others)
    namespace.wait("pod", "fedsilo-operator-test", "jsonpath={.status.phase}=Failed")
    assert "0 of 2 operators are ready" in namespace.logs("fedsilo-operator-test")
