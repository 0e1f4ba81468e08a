"""The dashboard of the operator's pods: behind `kubectl port-forward`, and nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cluster.images import TOOLBOX
from tests.cluster.kubectl import Namespace, pod

PORT = 8081


@pytest.fixture
def forwarded(operator: Namespace) -> Iterator[str]:
    """The address that a person has the dashboard at."""
    command = operator.kubectl.command(
        "-n", operator.name, "port-forward", "deployment/fedsilo-operator", f":{PORT}"
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None
        yield f"http://{found[0]}/"
    finally:
        process.kill()
        process.communicate()


def test_who_may_forward_a_port_sees_all_jobs(forwarded: str) -> None:
    with urllib.request.urlopen(forwarded, timeout=30) as response:
        assert b"static/app.js" in response.read()
    with urllib.request.urlopen(f"{forwarded}static/app.js", timeout=30) as response:
        assert response.status == 200
    with urllib.request.urlopen(f"{forwarded}api/jobs", timeout=30) as response:
        assert json.load(response)["place"] == "cluster"


def test_the_network_does_not_reach_it(operator: Namespace, namespace: Namespace) -> None:
    """It listens on the loopback address of its pod alone, and the network policy names no such port."""
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
