"""The state of the machine before the cluster, and how it is restored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from hack.cluster import network
from hack.cluster.paths import CGROUP, PODS_LOGS, RECORD, RUN, STATE, image_store
from hack.cluster.runtime import RUNTIME_STATE

INOTIFY = "fs/inotify/max_user_instances"
WATCHERS = 1024  # kubelet alone needs dozens, and the usual 128 are those of all programs of this user

# Files and settings outside our directories that kubelet, kube-proxy, containerd and CNI write however they are
# configured.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/vs/conntrack",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    INOTIFY,
)
CGROUPS = Path("/sys/fs/cgroup")
SUBTREE = CGROUPS / "cgroup.subtree_control"  # only where version 2 is the only one
_WEIGHTS = {"cpu.shares": 16 * 1024, "cpu.weight": 16 * 100}
"""Weight of all pods: 16 times what one process has, or in version 2 what one group has."""
KUBELET = "/var/lib/kubelet"
DIRECTORIES = (
    KUBELET,
    "/var/lib/cni",
    "/var/log/containers",
    "/run/containerd",
    "/usr/libexec/kubernetes",
)


@dataclass(frozen=True)
class MachineState:
    """The machine before the cluster.

    :param store: containerd's image store, which depends on the environment of whoever started the cluster.
    :param sysctls: settings by their path below /proc/sys.
    :param absent: directories that did not exist.
    :param chains: packet filter chains that look like ours and are not.
    :param sets: IP sets that look like ours and are not.
    :param controllers: what the root control group passed on to others (version 2).
    """

    store: str
    sysctls: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    chains: list[str] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)


def record() -> MachineState:
    """Record the state of the machine. From now on its presence says that there is something to take down."""
    before = MachineState(
        store=str(image_store()),
        sysctls={
            name: path.read_text().strip() for name in SYSCTLS if (path := Path("/proc/sys", name)).exists()
        },
        absent=[name for name in DIRECTORIES if not Path(name).exists()],
        chains=sorted(network.chains()),
        sets=sorted(network.sets()),
        controllers=SUBTREE.read_text().split() if SUBTREE.exists() else [],
    )
    STATE.mkdir(parents=True, exist_ok=True)
    fresh = RECORD.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(before), indent=2))
    fresh.replace(RECORD)
    return before


def recorded_state() -> MachineState | None:
    """The record of a cluster that was started and not yet taken down, perhaps by another version of this file."""
    if not RECORD.exists():
        return None
    known = {entry.name for entry in fields(MachineState)}
    return MachineState(
        **{name: value for name, value in json.loads(RECORD.read_text()).items() if name in known}
    )


def restore_sysctls(before: MachineState) -> int:
    """Put the machine's sysctls back to the values before the cluster, and return how many differed."""
    changed = 0
    for name, value in before.sysctls.items():
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)
            changed += 1
    return changed


def remove_traces(before: MachineState) -> None:
    """Remove what is ours in directories that others may use too, and those directories that were not there."""
    for address in RUNTIME_STATE.glob("io.containerd.runtime.v2.task/*/*/address"):
        Path(address.read_text().removeprefix("unix://")).unlink(missing_ok=True)  # the shim's socket
    for result in Path("/var/lib/cni/results").glob("*"):
        if str(RUNTIME_STATE) in result.read_text(errors="replace"):  # it names the pod's network namespace
            result.unlink()
    for link in Path("/var/log/containers").glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(PODS_LOGS):
            link.unlink()
    if KUBELET in before.absent:
        shutil.rmtree(KUBELET, ignore_errors=True)  # a second kubelet on the machine would not have worked
    for name in before.absent:
        for directory, _, _ in os.walk(name, topdown=False):
            with suppress(OSError):  # not empty: somebody else's by now
                Path(directory).rmdir()


def remove_state() -> None:
    """Remove our directories of state; the record goes last, since without it there is no cluster to take down."""
    shutil.rmtree(RUN, ignore_errors=True)
    for path in STATE.iterdir():
        if path.name in ("api", RECORD.name):  # API servers without a node are not part of the cluster
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    RECORD.unlink()
    if not any(STATE.iterdir()):
        STATE.rmdir()


def weigh_group(group: Path) -> None:
    """Give the pods together the CPU time of many processes, where it is short: by default, it is that of one."""
    for name, weight in _WEIGHTS.items():
        if (group / name).exists():
            (group / name).write_text(str(weight))


def make_cgroup() -> None:
    """Make the control group under which kubelet puts every pod, with every controller that there is."""
    groups = [root / CGROUP for root in _hierarchies()]
    for group in groups:
        group.mkdir(exist_ok=True)
    if SUBTREE.exists():
        for controller in (SUBTREE.parent / "cgroup.controllers").read_text().split():
            with suppress(OSError):  # kubelet names those that it misses
                SUBTREE.write_text(f"+{controller}")
    for group in groups:  # in version 2, a group has a weight once its parent hands the controller on
        weigh_group(group)


def allow_watchers() -> None:
    """Let kubelet watch files although other programs do so, too."""
    path = Path("/proc/sys", INOTIFY)
    if path.exists() and int(path.read_text()) < WATCHERS:
        path.write_text(str(WATCHERS))


def pods_processes() -> list[int]:
    """Processes in that control group."""
    found = set()
    for group in _groups():
        try:
            found |= {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        except OSError:
            continue  # it went with its last process
    return sorted(found)


def remove_cgroups(before: MachineState) -> int:
    """Remove the control group and all below it; how many there were."""
    removed = 0
    for group in sorted(_groups(), key=lambda path: -len(path.parts)):
        with suppress(FileNotFoundError):
            group.rmdir()
            removed += 1
    if SUBTREE.exists():
        for controller in set(SUBTREE.read_text().split()) - set(before.controllers):
            with suppress(OSError):  # somebody else needs it by now
                SUBTREE.write_text(f"-{controller}")
    return removed


def _groups() -> list[Path]:
    return [Path(directory) for root in _hierarchies() for directory, _, _ in os.walk(root / CGROUP)]


def _hierarchies() -> list[Path]:
    """Mount points of the control group hierarchies: one with version 2, one per controller with version 1."""
    if SUBTREE.exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def mounts(before: MachineState) -> list[str]:
    """Mount points below our directories, the innermost first."""
    roots = (f"{STATE}/", f"{RUN}/", f"{before.store}/")
    points = [
        line.split()[4].encode().decode("unicode_escape")  # proc(5): octal escapes for blanks
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return [point for point in reversed(points) if f"{point}/".startswith(roots)]


def unmount(before: MachineState) -> int:
    """Unmount all of them; how many there were."""
    points = mounts(before)
    for point in points:
        if subprocess.run(["umount", point], capture_output=True).returncode != 0:
            subprocess.run(["umount", "--lazy", point], capture_output=True)
    return len(points)
