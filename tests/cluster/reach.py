"""What a pod can reach: destinations of every kind, tried at once from inside the pod."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass

from hack.cluster.kubectl import Kubectl
from tests.cluster.namespace import Namespace

PORT = 9000
"""Port on which `listening` listens."""


@dataclass(frozen=True)
class Destination:
    """A network destination that a pod tries to reach.

    :param way: `tcp` for a connection, `dns` for an answer of a name server over UDP, `name` for an address of a name.
    """

    host: str
    port: int
    way: str = "tcp"


def reached_destinations(namespace: Namespace, pod: str, destinations: Mapping[str, Destination]) -> set[str]:
    """The destinations that answer a pod with Python in it, by name."""
    asked = json.dumps({name: astuple(destination) for name, destination in destinations.items()})
    return set(json.loads(namespace.execute(pod, "python3", "-c", _TRY, asked)))


def name_servers(kubectl: Kubectl) -> dict[str, Destination]:
    """The cluster's name server in every way that it can be asked."""
    host = kubectl.get("-n", "kube-system", "service", "kube-dns")["spec"]["clusterIP"]
    return {
        "DNS over UDP": Destination(host, 53, "dns"),
        "DNS over TCP": Destination(host, 53),
        "a look-up": Destination("kubernetes.default.svc.cluster.local.", 443, "name"),
    }


def api_servers(kubectl: Kubectl) -> dict[str, Destination]:
    """The API server under its cluster address and on its host."""
    service = kubectl.get("-n", "default", "service", "kubernetes")
    slices = kubectl.get("-n", "default", "endpointslices", "-l", "kubernetes.io/service-name=kubernetes")
    (found,) = slices["items"]
    return {
        "the API server's Service": Destination(service["spec"]["clusterIP"], 443),
        "the API server on its host": Destination(
            found["endpoints"][0]["addresses"][0], found["ports"][0]["port"]
        ),
    }


@contextmanager
def listening(namespace: Namespace, pod: str) -> Iterator[Destination]:
    """A port of a running pod at which every connection is taken, for as long as the block runs."""
    command = namespace.kubectl.command(
        "-n", namespace.name, "exec", "-i", pod, "--", "python3", "-c", _LISTEN
    )
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            yield Destination(namespace.get("pod", pod)["status"]["podIP"], PORT)
        finally:
            process.terminate()


# A policy drops, so silence is the answer to wait for.
_TRY = """
import json, os, socket, sys
from concurrent.futures import ThreadPoolExecutor
os.environ["RES_OPTIONS"] = "timeout:1 attempts:2"
TIMEOUT_SECONDS = 3.0
NAME = b"".join(bytes([len(part)]) + part for part in b"kubernetes.default.svc.cluster.local".split(b"."))
QUESTION = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + NAME + b"\\0\\0\\1\\0\\1"  # RFC 1035: its address, recursively
def tcp(host, port):
    socket.create_connection((host, port), TIMEOUT_SECONDS).close()
def dns(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(TIMEOUT_SECONDS)
        asking.connect((host, port))
        asking.send(QUESTION)
        asking.recv(512)
def name(host, port):
    socket.getaddrinfo(host, port)
def answers(destination):
    host, port, way = destination
    try:
        {"tcp": tcp, "dns": dns, "name": name}[way](host, port)
    except OSError:
        return False
    return True
destinations = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(destinations)) as pool:
    found = list(pool.map(answers, destinations.values()))
print(json.dumps([destination for destination, answered in zip(destinations, found) if answered]))
"""

# It ends with its standard input: kubectl alone is gone when the test is over.
_LISTEN = f"""
import os, socket, sys, threading
server = socket.create_server(("0.0.0.0", {PORT}))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
