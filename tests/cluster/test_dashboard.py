"""The dashboard of the operator's pods: behind `kubectl port-forward`, and nowhere else."""

from __future__ import annotations

import json
import re
import urllib.request

from hack.images import TOOLBOX
from tests.cluster.namespace import Namespace, pod
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

PORT = 8081


@runs("charts/fedsilo/README.md", "kubectl port-forward -n fedsilo-system deployment/fedsilo-operator 8081")
@runs("docs/dashboard.md", "kubectl port-forward -n fedsilo-system deployment/fedsilo-operator 8081")
def test_who_may_forward_a_port_sees_all_jobs(operator: Namespace, terminal: Terminal) -> None:
    (command,) = set(terminal.commands)
    with terminal.start_command(command) as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline() == f"Forwarding from 127.0.0.1:{PORT} -> {PORT}\n"
        page = (ROOT / "docs" / "dashboard.md").read_text()
        (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+/", page))
        with urllib.request.urlopen(address, timeout=30) as response:
            assert b"static/app.js" in response.read()
        with urllib.request.urlopen(f"{address}static/app.js", timeout=30) as response:
            assert response.status == 200
        with urllib.request.urlopen(f"{address}api/jobs", timeout=30) as response:
            assert json.load(response)["place"] == "cluster"


def test_the_network_does_not_reach_it(operator: Namespace, namespace: Namespace) -> None:
    """The dashboard listens on the loopback address of its pod alone, and the network policy names no such port."""
    addresses = [
        each["status"]["podIP"]
        for each in operator.select("pods", "app.kubernetes.io/name=fedsilo-operator")
        if each["status"].get("podIP")
    ]
    assert addresses
    script = f"""
import socket
for address in {addresses!r}:
    try:
        socket.create_connection((address, {PORT}), timeout=3)
        print("open", address)
    except OSError as error:
        print("closed")
"""
    namespace.apply(pod("looker", TOOLBOX, ("python3", "-c", script)))
    namespace.wait("pod", "looker", "jsonpath={.status.phase}=Succeeded")
    assert set(namespace.logs("looker").split()) == {"closed"}
