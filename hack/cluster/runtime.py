"""Configuration of containerd, the images that the cluster itself needs, and what containerd keeps between two
clusters.

The image store outlives `cluster-down`, so images are loaded once. Containers do not: they are removed from the
store by a containerd that runs without its Kubernetes half and therefore starts none of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from hack.cluster import processes
from hack.cluster.archive import write_image
from hack.cluster.errors import ClusterError
from hack.cluster.packages import CNI
from hack.cluster.paths import BRIDGE, CONTAINERD_SOCKET, LOGS, OWNER, PODS, RUN, STATE

CONFIG = STATE / "containerd.toml"
RUNTIME_STATE = STATE / "containerd"
CNI_NETWORK = "fedsilo-cluster"
MTU = 1400  # fits into the tunnels of common clouds
NAMESPACE = "k8s.io"
IMAGES = "localhost/fedsilo-cluster"

_CAP_SYS_RESOURCE = 24
_CRI = "io.containerd.grpc.v1.cri"


def configuration(store: Path, pause: str, *, restricted: bool) -> str:
    """containerd's configuration file, version 2.

    :param restricted: the machine lacks CAP_SYS_RESOURCE, so a container's OOM score cannot be below containerd's.
    """
    return f"""\
version = 2
root = "{store}"
state = "{RUNTIME_STATE}"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{STATE}/opt"

[plugins."{_CRI}"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = {str(restricted).lower()}
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true

[plugins."{_CRI}".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."{_CRI}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."{_CRI}".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{STATE}/runc"

[plugins."{_CRI}".cni]
  bin_dir = "{CNI}"
  conf_dir = "{STATE}/cni"
"""


def network_configuration() -> dict[str, object]:
    """CNI chain of the pods' network. Pods have no IPv6: its link-local addresses would bypass every NetworkPolicy."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "mtu": MTU,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "dataDir": str(STATE / "cni-addresses"),
        },
    }
    no_ipv6 = {"type": "tuning", "sysctl": {"net.ipv6.conf.eth0.disable_ipv6": "1"}}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": CNI_NETWORK, "plugins": [bridge, no_ipv6, ports]}


def write_configuration(store: Path, pause: str) -> None:
    """Write the files that containerd reads."""
    CONFIG.write_text(configuration(store, pause, restricted=not has_capability(_CAP_SYS_RESOURCE)))
    directory = STATE / "cni"
    directory.mkdir(exist_ok=True)
    (directory / "10-fedsilo.conflist").write_text(json.dumps(network_configuration(), indent=2))
    RUN.mkdir(exist_ok=True)


def has_capability(number: int) -> bool:
    """Whether this process holds a capability (capabilities(7))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def ctr(*arguments: str, socket: Path = CONTAINERD_SOCKET) -> str:
    """Output of containerd's own client. The process is marked as ours, since it hangs when containerd ends.

    :raises ClusterError: when it fails.
    """
    address = ["--address", str(socket), "--connect-timeout", "5s"]
    command = ["ctr", *address, "--namespace", NAMESPACE, *arguments]
    marked = {**os.environ, processes.MARK: f"{OWNER}/ctr"}
    done = subprocess.run(command, capture_output=True, text=True, env=marked)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def answers() -> bool:
    """Whether containerd answers on its socket."""
    try:
        ctr("version")
    except (ClusterError, FileNotFoundError):
        return False
    return True


def image_name(program: Path) -> str:
    """The reference of the image of one of our programs; its tag changes with the program."""
    return f"{IMAGES}-{program.name}:{program.parent.name.rpartition('-')[2]}"


def images() -> list[str]:
    """References of the images in the store."""
    return sorted(name for name in ctr("images", "ls", "-q").split() if not name.startswith("sha256:"))


def load(program: Path) -> None:
    """Put the image of one of our programs into the store, unless it is there; earlier versions go."""
    name = image_name(program)
    present = images()
    if name not in present:
        archive = RUNTIME_STATE / f"{program.name}.tar"
        write_image(archive, name, program)
        ctr("images", "import", str(archive))
        archive.unlink()
    if stale := [
        other for other in present if other.startswith(f"{IMAGES}-{program.name}:") and other != name
    ]:
        ctr("images", "rm", *stale)


def remove_containers(store: Path) -> int:
    """Remove every container from a store that no containerd uses at present; how many there were."""
    if not (store / "io.containerd.metadata.v1.bolt").exists():
        return 0
    RUN.mkdir(exist_ok=True)
    sweep = STATE / "sweep.toml"
    sweep.write_text(
        f'disabled_plugins = ["{_CRI}"]\n{configuration(store, "unused", restricted=False)}'.replace(
            str(RUNTIME_STATE), f"{RUNTIME_STATE}-sweep"
        )
    )
    owner, log = f"{OWNER}/sweep", LOGS / "sweep.log"
    processes.start(owner, ["containerd", f"--config={sweep}"], log)
    try:
        processes.wait_until(answers, "containerd", 20, {owner: log}, every=0.05)
        containers = ctr("containers", "ls", "-q").split()
        if containers:
            ctr("containers", "rm", *containers)
        return len(containers)
    finally:
        time.sleep(0.1)  # its garbage collection is under way
        processes.end(owner)
