"""What every other test on the cluster takes for granted: pods, Jobs and Services work."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX
from tests.cluster.namespace import Namespace, fresh_namespace, pod, wait_until

ENDLESS_COMMAND = ("sleep", "infinity")


def serve_text(namespace: Namespace, name: str, text: str) -> str:
    """A pod that serves one text over HTTP on port 8000; its address."""
    script = f"cd /tmp; echo {text} > index.html; exec python3 -m http.server"
    serving = pod(
        name, TOOLBOX, ("sh", "-c", script), labels={"app": name}, volumes={"/tmp": {"emptyDir": {}}}
    )
    namespace.apply(serving)
    namespace.wait("pod", name, "condition=Ready")
    wait_until(lambda: "Serving" in namespace.logs(name) or _answers(namespace, name), f"{name} to serve")
    return str(namespace.get("pod", name)["status"]["podIP"])


def _answers(namespace: Namespace, name: str) -> bool:
    probe = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 8000)))"
    return namespace.execute(name, "python3", "-c", probe).strip() == "0"


def test_a_job_completes_and_its_log_can_be_read(namespace: Namespace) -> None:
    template = pod("unused", TOOLBOX, ("echo", "six silos"))["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"}}
    namespace.apply(job | {"spec": {"template": {"spec": template}}})
    namespace.wait("job", "hello", "condition=Complete")
    assert namespace.run("logs", "job/hello") == "six silos\n"


@pytest.fixture(scope="module")
def shared_namespace(kubectl: Kubectl) -> Iterator[Namespace]:
    """A namespace with a server, and a client that has its account's token."""
    with fresh_namespace(kubectl) as namespace:
        namespace.apply(pod("client", TOOLBOX, ENDLESS_COMMAND, automountServiceAccountToken=True))
        serve_text(namespace, "server", "here")
        namespace.wait("pod", "client", "condition=Ready")
        yield namespace


def test_a_command_runs_in_a_pod(shared_namespace: Namespace) -> None:
    assert shared_namespace.execute("client", "id", "-u") == "65532\n"


def test_a_port_is_forwarded(shared_namespace: Namespace) -> None:
    with (
        shared_namespace.forward_port("pod/server", 8000) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer,
    ):
        assert answer.read() == b"here\n"


@pytest.mark.parametrize("name", ["clustered", "headless"])
def test_a_service_is_found_by_name(shared_namespace: Namespace, name: str) -> None:
    spec = {"selector": {"app": "server"}, "ports": [{"port": 8000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    shared_namespace.apply(service | {"spec": spec | ({"clusterIP": "None"} if name == "headless" else {})})
    for host in (
        name,
        f"{name}.{shared_namespace.name}",
        f"{name}.{shared_namespace.name}.svc.cluster.local",
    ):
        # Endpoints and the name server's cache follow the pod within a moment.
        wait_until(partial(_answers_by_name, shared_namespace, host), f"an answer from {host}")


def _answers_by_name(namespace: Namespace, name: str) -> bool:
    fetch = f"import urllib.request as r; print(r.urlopen('http://{name}:8000', timeout=5).read())"
    return "here" in namespace.execute("client", "sh", "-c", f'python3 -c "{fetch}" 2>&1 || true')


def test_a_pod_reaches_the_api_server_with_its_account_and_no_further(shared_namespace: Namespace) -> None:
    script = (
        "import ssl, urllib.request as r, urllib.error\n"
        "home = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "context = ssl.create_default_context(cafile=home + 'ca.crt')\n"
        "def ask(path):\n"
        "    request = r.Request('https://kubernetes.default.svc' + path)\n"
        "    request.add_header('Authorization', 'Bearer ' + open(home + 'token').read())\n"
        "    try:\n"
        "        return r.urlopen(request, context=context, timeout=5).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "print(ask('/version'), ask('/api/v1/secrets'))\n"
    )
    assert shared_namespace.execute("client", "python3", "-c", script) == "200 403\n"


def test_the_control_plane_is_the_version_that_is_promised(kubectl: Kubectl) -> None:
    (node,) = kubectl.get("nodes")["items"]
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.36.")
    assert '"gitVersion": "v1.36.' in kubectl.run("version", "-o", "json")
