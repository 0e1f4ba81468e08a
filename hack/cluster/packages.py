"""Commands that come from Debian (or Ubuntu) packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache, say

PACKAGES = {
    "buildah": "buildah",
    "chromium-headless-shell": "chromium-headless-shell",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "ctr": "containerd",
    "debootstrap": "debootstrap",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "mount": "mount",
    "nginx": "nginx-light",
    "runc": "runc",
    "skopeo": "skopeo",
    "socat": "socat",
    "squid": "squid",
}
CNI = Path("/usr/lib/cni")
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NODE_COMMANDS = ("containerd", "ctr", "runc", "ip", "iptables", "ipset", "conntrack", "socat", "mount")


def ensure(*commands: str) -> None:
    """Install the packages of those commands that this machine lacks.

    :raises ClusterError: when apt-get cannot.
    """
    missing = sorted(
        {PACKAGES[command] for command in commands if shutil.which(command, path=SEARCH) is None}
    )
    if "containerd" in commands and not (CNI / "bridge").exists():
        missing.append("containernetworking-plugins")
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"this machine lacks {', '.join(missing)} and has no apt-get; install them with its own package manager"
        )
    say(f"installing Debian packages: {' '.join(missing)}")
    with _hold_apt_lock(), _services_stay_down():
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *missing)


@contextmanager
def _hold_apt_lock() -> Iterator[None]:
    """No other process of ours calls apt-get, whose wait for its locks does not cover that of the package lists."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "apt.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _services_stay_down() -> Iterator[None]:
    """Debian starts a package's service with its installation unless this program forbids it (invoke-rc.d(8))."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():  # the machine's own word
        yield
        return
    try:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink(missing_ok=True)


def unpack_package(package: str) -> Path:
    """A package's files in the cache, not installed: some packages start a service that is not wanted here.

    :raises ClusterError: when apt-get cannot.
    """
    place = cache() / "packages" / package
    if not place.exists():
        say(f"fetching Debian package {package}")
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent) as folder:
            _apt("update")
            _apt("download", package, folder=Path(folder))
            (archive,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "--extract", str(archive), f"{folder}/files"], check=True)
            (Path(folder) / "files").rename(place)
    return place


def _apt(*arguments: str, folder: Path | None = None) -> None:
    # Machines often install something by themselves shortly after their start, and hold the lock meanwhile.
    command = ["apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=300", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise ClusterError(
            f"{' '.join(command)} failed with exit code {done.returncode}; its last lines:\n{tail}"
        )
