"""API servers without a node: etcd and kube-apiserver on ports of the loopback, for tests that need no pods.

They are independent of the one-node cluster and of each other, and need no root.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from hack.cluster import components, processes
from hack.cluster.binaries import programs
from hack.cluster.certificates import write_control_plane, write_kubeconfig
from hack.cluster.client import healthy
from hack.cluster.components import Component, ControlPlane
from hack.cluster.errors import ClusterError
from hack.cluster.paths import API_ADDRESS, STATE, cache

LOOPBACK = "127.0.0.1"
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
)
UNLIMITED_RATE_FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=1000")


@contextmanager
def api_server(
    name: str, *, controllers: bool = False, pods: bool = False, one_of: int = 1
) -> Iterator[Path]:
    """An empty API server for as long as the block runs; the path of its kubeconfig."""
    try:
        yield start(name, controllers=controllers, pods=pods, one_of=one_of)
    finally:
        stop(name)


def start(name: str, *, controllers: bool = False, pods: bool = False, one_of: int = 1) -> Path:
    """Start an empty API server, in place of one of that name; the path of its kubeconfig.

    :param name: letters, digits, dots and hyphens.
    :param controllers: also run garbage collection, namespaces and service accounts.
    :param pods: with them, make the pods of Jobs, as fast as the API server takes them.
    :param one_of: how many API servers it thinks there are: if several, it serves a new definition after five seconds.
    :raises ClusterError: when it does not start.
    """
    built = programs()
    stop(name)
    plane = _plane(name)
    authority = write_control_plane(plane.pki, [LOOPBACK, "localhost", API_ADDRESS])
    kubeconfig = plane.root / "kubeconfig"
    admin = authority.issue("fedsilo-admin", ["system:masters"])
    write_kubeconfig(kubeconfig, plane.server, authority.pair().cert, admin)
    # There is no endpoint to publish: a loopback address means something else in every pod.
    server = components.apiserver(
        plane, built, "--endpoint-reconciler-type=none", f"--apiserver-count={one_of}"
    )
    started = [components.etcd(plane, built), server]
    _launch(started)
    _wait(started)
    if controllers:
        names = [*CONTROLLERS, *(["job-controller"] if pods else [])]
        flags = [f"--controllers={','.join(names)}", *(UNLIMITED_RATE_FLAGS if pods else [])]
        manager = components.controller_manager(plane, built, kubeconfig, *flags)
        _launch([manager])
        _wait([*started, manager])
    return kubeconfig


def stop(name: str) -> None:
    """Stop an API server and remove its directory, if there is one."""
    root = _root(name)
    processes.end(f"api/{name}")
    shutil.rmtree(root, ignore_errors=True)


def _root(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", name):
        raise ClusterError(f"API server's name {name!r}: use letters, digits, dots and hyphens")
    return (STATE if os.geteuid() == 0 else cache()) / "api" / name


def _plane(name: str) -> ControlPlane:
    return ControlPlane(f"api/{name}", _root(name), LOOPBACK, *_free_ports(4))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:  # all held at once, so that they differ
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind((LOOPBACK, 0))
        return [held.getsockname()[1] for held in sockets]


def _launch(started: list[Component]) -> None:
    for component in started:
        processes.start(component.owner, component.command, component.log)


def _wait(started: list[Component]) -> None:
    owners = {component.owner: component.log for component in started}
    for component in started:
        processes.wait_until(partial(healthy, component.health), component.name, 60, owners)
