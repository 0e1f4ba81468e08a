"""What is installed in a new cluster: storage class, DNS, and pretended GPUs."""

from __future__ import annotations

import socket
import string
import struct
import subprocess
from pathlib import Path

from hack.cluster.client import Client
from hack.cluster.errors import ClusterError
from hack.cluster.paths import DNS_ADDRESS, DOMAIN, GPUS, INSTITUTION, KUBECONFIG, NODE
from hack.cluster.premises import HUB_NAME, of_institution

NODE_PATH = f"/api/v1/nodes/{NODE}"
GPU = "nvidia.com/gpu"


def manifests(coredns: str, *, forward: bool) -> str:
    """The manifests of addons.yaml.

    :param coredns: the image of CoreDNS.
    :param forward: whether the machine has name servers, which answer for other domains; an institution reaches none,
        and knows the hub only.
    """
    template = string.Template((Path(__file__).parent / "addons.yaml").read_text())
    if INSTITUTION:
        hub = of_institution(INSTITUTION).gateway
        upstream = f"hosts {{\n            {hub} {HUB_NAME}\n            fallthrough\n        }}"
    else:
        upstream = "forward . /etc/resolv.conf" if forward else ""
    return template.substitute(coredns=coredns, dns=DNS_ADDRESS, domain=DOMAIN, forward=upstream)


def apply(kubectl: Path, text: str) -> None:
    """Apply manifests as the administrator.

    :raises ClusterError: when the API server refuses one.
    """
    command = [str(kubectl), f"--kubeconfig={KUBECONFIG}", "apply", "--server-side", "--filename=-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"the add-ons are refused: {done.stderr.strip()[-2000:]}")


def advertise_gpus(client: Client) -> None:
    """Give the node GPUs to schedule by (Kubernetes: "Advertise Extended Resources for a Node")."""
    client.merge(f"{NODE_PATH}/status", {"status": {"capacity": {GPU: str(GPUS)}}})


def node_is_ready(client: Client) -> bool:
    """Whether the node is ready and has its GPUs."""
    node = client.get(NODE_PATH)
    if node is None:
        return False
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and node["status"].get("allocatable", {}).get(GPU) == str(GPUS)


def dns_answers() -> bool:
    """Whether the cluster's DNS knows the API server's Service."""
    name = f"kubernetes.default.svc.{DOMAIN}"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
            query.settimeout(0.3)
            query.sendto(dns_query(name), (DNS_ADDRESS, 53))
            return has_answer(query.recv(512))
    except OSError:
        return False


def dns_query(name: str) -> bytes:
    """A query for the IPv4 addresses of a name (RFC 1035, section 4.1)."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)


def has_answer(message: bytes) -> bool:
    """Whether a DNS message is an answer without error and with at least one record."""
    if len(message) < 12:
        return False
    _, flags, _, answers = struct.unpack(">4H", message[:8])
    return bool(flags & 0x8000) and flags & 0xF == 0 and answers > 0
