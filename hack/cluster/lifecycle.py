"""Start and end of the one-node test cluster, the commands `up` and `down`.

`up` never repairs. What is left of an earlier cluster, whether it was killed half-way or has lost a component, is
taken down first, and the new one starts from nothing but the caches. So there is one path to a running cluster.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import yaml

from hack.cluster import addons, machine, network, packages, processes, runtime
from hack.cluster.binaries import programs
from hack.cluster.certificates import write_control_plane, write_kubeconfig, write_private
from hack.cluster.client import Client, healthy
from hack.cluster.components import (
    COMPONENT_NAMES,
    NODE_PLANE,
    Component,
    Node,
    kube_proxy_configuration,
    kubeconfig,
    kubelet_configuration,
)
from hack.cluster.errors import ClusterError
from hack.cluster.paths import (
    ADDRESS,
    API_ADDRESS,
    COMPLETION_FILE,
    DOMAIN,
    KUBECONFIG,
    LOCK,
    NODE,
    OWNER,
    PODS_LOGS,
    RECORD,
    STATE,
    VOLUMES,
    hold_lock,
    say,
)
from hack.paths import ROOT

RESOLV_CONFS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))


def start_cluster() -> None:
    """Start the cluster, unless it runs already.

    :raises ClusterError: when it cannot be started; `down` removes what was.
    """
    _need_root()
    with hold_lock(LOCK, "changes the cluster"):
        if is_healthy():
            say(f"already up; KUBECONFIG={KUBECONFIG}")
            return
        packages.ensure(*packages.NODE_COMMANDS)
        built = programs()
        _take_down()
        began = time.monotonic()
        _start(built)
        say(f"up in {time.monotonic() - began:.0f} s; KUBECONFIG={KUBECONFIG} PATH={STATE}/bin:$PATH")


def remove_cluster() -> None:
    """Stop the cluster and remove everything but the caches and API servers without a node.

    :raises ClusterError: naming what is left, if anything is.
    """
    _need_root()
    with hold_lock(LOCK, "changes the cluster"):
        if not _take_down():
            say("nothing to take down")


def is_healthy() -> bool:
    """Whether the cluster was started completely and everything still works."""
    if not COMPLETION_FILE.exists():
        return False
    leaders = {process.owner for process in processes.running(OWNER) if process.leader}
    if not all(f"{OWNER}/{name}" in leaders for name in COMPONENT_NAMES):
        return False
    try:
        return addons.node_is_ready(Client(NODE_PLANE.server, NODE_PLANE.pki)) and addons.dns_answers()
    except OSError:
        return False


def _start(built: Path) -> None:
    _refuse_second_kubernetes()
    before = machine.record()
    resolv_conf, forward = network.resolv_conf(RESOLV_CONFS)
    pause, coredns = built / "pause", built / "coredns"
    _write_files(built, resolv_conf)
    runtime.write_configuration(Path(before.store), runtime.image_name(pause))
    machine.make_cgroup()
    machine.allow_watchers()
    network.set_up()
    node = Node(built, runtime.CONFIG, sys.executable)

    say("starting etcd, kube-apiserver and containerd")
    first = [node.etcd(), node.apiserver(), node.containerd()]
    _launch(first)
    _wait(runtime.answers, "containerd", 30, first)
    runtime.load(pause)
    runtime.load(coredns)
    _wait(partial(healthy, first[1].health), "kube-apiserver", 120, first)

    say("starting the node")
    everything = [*first, *node.followers()]
    _launch(everything[len(first) :])
    addons.apply(built / "kubectl", addons.manifests(runtime.image_name(coredns), forward=forward))
    client = Client(NODE_PLANE.server, NODE_PLANE.pki)
    _wait(lambda: client.get(addons.NODE_PATH) is not None, f"node {NODE}", 60, everything)
    addons.advertise_gpus(client)
    everything.append(node.network_policies())
    _launch(everything[-1:])
    _wait(lambda: addons.node_is_ready(client), f"node {NODE} to be ready", 120, everything)
    _wait(addons.dns_answers, "the cluster's DNS", 120, everything)
    for component in everything:
        if component.health:
            _wait(partial(healthy, component.health), component.name, 60, everything)
    COMPLETION_FILE.write_text(json.dumps({"components": {c.name: c.health for c in everything}}, indent=2))


def _write_files(built: Path, resolv_conf: Path) -> None:
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}"]
    authority = write_control_plane(NODE_PLANE.pki, [*names, API_ADDRESS, ADDRESS])
    authority.issue(f"system:node:{NODE}", addresses=[NODE, ADDRESS]).write(NODE_PLANE.pki, "kubelet")
    clients = {
        "admin": authority.issue("fedsilo-admin", ["system:masters"]),
        "kube-controller-manager": authority.issue("system:kube-controller-manager"),
        "kube-scheduler": authority.issue("system:kube-scheduler"),
        "kube-proxy": authority.issue("system:kube-proxy"),
        "kubelet": authority.issue(f"system:node:{NODE}", ["system:nodes"]),
    }
    kubeconfig("admin").parent.mkdir(exist_ok=True)
    ca = authority.pair().cert
    for name, pair in clients.items():
        write_kubeconfig(kubeconfig(name), NODE_PLANE.server, ca, pair)
    write_kubeconfig(KUBECONFIG, NODE_PLANE.server, ca, clients["admin"])
    write_private(STATE / "kubelet.yaml", yaml.safe_dump(kubelet_configuration(resolv_conf)).encode())
    write_private(STATE / "kube-proxy.yaml", yaml.safe_dump(kube_proxy_configuration()).encode())
    for directory in (PODS_LOGS, VOLUMES, STATE / "bin"):
        directory.mkdir(exist_ok=True)
    for program in ("kubectl", "helm"):
        (STATE / "bin" / program).symlink_to(built / program)


def _launch(components: Iterable[Component]) -> None:
    for component in components:
        path = {
            "PATH": f"{os.environ.get('PATH', '')}:{packages.SEARCH}",
            "PYTHONPATH": str(ROOT),
        }
        processes.start(component.owner, component.command, component.log, path)


def _wait(holds: Callable[[], bool], what: str, seconds: float, components: Iterable[Component]) -> None:
    processes.wait_until(holds, what, seconds, {component.owner: component.log for component in components})


def _take_down() -> bool:
    """Remove the cluster or what is left of one; whether there was anything."""
    before = machine.recorded_state()
    if before is None:
        return False
    removed = {"processes": processes.end(OWNER)}
    removed["processes of pods"] = processes.kill_until_gone(machine.pods_processes, "pods")
    removed["mounts"] = machine.unmount(before)
    removed["links"] = network.remove_links()
    network.forget_connections()
    removed["packet filter chains"] = network.remove_chains(before.chains)
    removed["IP sets"] = network.remove_sets(before.sets)
    removed["containers"] = runtime.remove_containers(Path(before.store))
    removed["control groups"] = machine.remove_cgroups(before)
    removed["changed settings"] = machine.restore_sysctls(before)
    machine.remove_traces(before)
    if left := _leftovers(before):
        raise ClusterError(
            f"could not remove {', '.join(left)}; run cluster-down again, or remove them by hand"
        )
    machine.remove_state()
    say("removed " + ", ".join(f"{count} {what}" for what, count in removed.items() if count))
    say(f"nothing is left but the cache {before.store} and {LOCK}")
    return True


def _leftovers(before: machine.MachineState) -> list[str]:
    left = [f"process {process.pid} ({process.owner})" for process in processes.running(OWNER)]
    left += [f"process {pid} of a pod" for pid in machine.pods_processes()]
    left += [f"mount {point}" for point in machine.mounts(before)]
    left += [f"link {name}" for name in network.links()]
    left += [f"chain {name}" for name in sorted(network.chains() - set(before.chains))]
    left += [f"IP set {name}" for name in sorted(network.sets() - set(before.sets))]
    return left


def _refuse_second_kubernetes() -> None:
    if foreign := [name for name in sorted(network.chains()) if " KUBE-" in name]:
        raise ClusterError(
            f"this machine has {len(foreign)} packet filter chains of another Kubernetes (such as {foreign[0]}), "
            f"and no record in {RECORD} that they are ours; stop that cluster and remove its chains"
        )


def _need_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("the test cluster changes network and mounts of this machine; run it as root")
