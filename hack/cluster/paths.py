"""The directories of the cluster, and the addresses that it uses.

Everything that one run makes is under `STATE` and goes with it. What is worth keeping, binaries and images, is in the
cache. `RUN` holds the one socket that others connect to.

A process works on one cluster: the hub's, or that of an institution, which runs in a network namespace of its own
(premises.py). There all addresses and ports are its own, so the two differ in their directories only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSTITUTIONS = ("clinic",)
"""That may have a cluster beside the hub's."""

INSTITUTION_VARIABLE = "FEDSILO_CLUSTER_OF"
INSTITUTION = os.environ.get(INSTITUTION_VARIABLE, "")
"""Whose cluster this process works on; the hub's when empty."""


def qualified_name(name: str, institution: str = INSTITUTION) -> str:
    """A name on this machine that each cluster has its own of."""
    return f"{name}-{institution}" if institution else name


STATE = Path("/var/lib", qualified_name("fedsilo-cluster"))
RUN = Path("/run", qualified_name("fedsilo-cluster"))
LOCK = Path("/run", qualified_name("fedsilo-cluster") + ".lock")
OWNER = qualified_name("node")
"""Owner that marks the processes of the cluster."""

CONTAINERD_SOCKET = RUN / "containerd.sock"
KUBECONFIG = STATE / "kubeconfig"
LOGS = STATE / "logs"
PODS_LOGS = STATE / "pod-logs"
VOLUMES = STATE / "volumes"
RECORD = STATE / "before.json"
COMPLETION_FILE = STATE / "up.json"

NODE = "fedsilo-node"
BRIDGE = "fedsilo0"
CGROUP = qualified_name("fedsilo-cluster")
ADDRESS = "10.244.0.1"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
DOMAIN = "cluster.local"
GPUS = 4


def cache() -> Path:
    """Directory of what survives `cluster-down`: built binaries and containerd's images."""
    if chosen := os.environ.get("FEDSILO_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "fedsilo"


def image_store() -> Path:
    """Where containerd keeps images."""
    return cache() / qualified_name("containerd")


def say(text: str) -> None:
    """One line of progress, at once, also into a log."""
    print(f"{qualified_name('cluster')}: {text}", flush=True)


@contextmanager
def hold_lock(path: Path, owner: str) -> Iterator[None]:
    """Hold a lock for as long as the block runs, against every other process on this machine.

    The kernel frees it with its holder, however that ends; the file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that {owner} ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
