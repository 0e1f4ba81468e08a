"""What runs, for a person to read."""

from __future__ import annotations

import datetime
import json

from hack.cluster import addons, lifecycle, machine, processes, runtime
from hack.cluster.client import Client, healthy
from hack.cluster.components import COMPONENT_NAMES, NODE_PLANE
from hack.cluster.errors import ClusterError
from hack.cluster.paths import COMPLETION_FILE, KUBECONFIG, LOGS, OWNER, STATE


def show() -> int:
    """Print the cluster's state; 0 if it is healthy, otherwise 1."""
    before = machine.recorded_state()
    if before is None:
        print("The cluster is down; `make cluster-up` starts it.")
        return 1
    fine = lifecycle.is_healthy()
    rows = [
        *component_rows(_healths(), processes.running(OWNER)),
        "",
        *_node_rows(),
        *_image_rows(),
        f"{'kubeconfig':<12}{KUBECONFIG}",
        f"{'programs':<12}{STATE}/bin",
        f"{'logs':<12}{LOGS}",
        f"{'image store':<12}{before.store}",
        "",
        f"The cluster is {'healthy' if fine else 'not healthy; `make cluster-up` starts it anew'}.",
    ]
    print("\n".join(rows))
    return 0 if fine else 1


def component_rows(healths: dict[str, str], running: list[processes.Process]) -> list[str]:
    """The table of components.

    :param healths: what to print for each that runs.
    """
    leaders = {process.owner.partition("/")[2]: process for process in running if process.leader}
    rows = [f"{'COMPONENT':<26}{'PID':>8}  {'UP':>16}  HEALTH"]
    for name in COMPONENT_NAMES:
        if process := leaders.get(name):
            age = str(datetime.timedelta(seconds=int(process.seconds)))
            rows.append(f"{name:<26}{process.pid:>8}  {age:>16}  {healths.get(name, 'running')}")
        else:
            rows.append(f"{name:<26}{'-':>8}  {'-':>16}  not running")
    return rows


def _healths() -> dict[str, str]:
    if not COMPLETION_FILE.exists():
        return {}
    addresses = json.loads(COMPLETION_FILE.read_text())["components"]
    found = {name: "ok" if healthy(url) else "does not answer" for name, url in addresses.items() if url}
    return {**found, "containerd": "ok" if runtime.answers() else "does not answer"}


def _node_rows() -> list[str]:
    try:
        node = Client(NODE_PLANE.server, NODE_PLANE.pki).get(addons.NODE_PATH)
    except OSError:
        node = None
    if node is None:
        return [f"{'node':<12}not registered"]
    info, capacity = node["status"]["nodeInfo"], node["status"]["allocatable"]
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    ready = "ready" if conditions.get("Ready") == "True" else "not ready"
    versions = f"Kubernetes {info['kubeletVersion']}, {info['containerRuntimeVersion'].replace('://', ' ')}"
    return [
        f"{'node':<12}{node['metadata']['name']}, {ready}, {versions}",
        f"{'GPUs':<12}{capacity.get(addons.GPU, '0')} ({addons.GPU}, numbers only)",
        f"{'DNS':<12}{'answers' if addons.dns_answers() else 'does not answer'}",
    ]


def _image_rows() -> list[str]:
    try:
        names = runtime.images()
    except (ClusterError, FileNotFoundError):
        return []
    return [f"{'images' if number == 0 else '':<12}{name}" for number, name in enumerate(names)]
