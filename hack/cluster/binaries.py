"""The programs of the test cluster, built from the Go module in hack/binaries and cached.

One module has one version of each library, so what several programs have in common is compiled once. A cache entry is
named after the module's files and the build's flags. It is built beside its place and renamed when it is complete, so
an interruption leaves nothing that could be taken for complete.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from pathlib import Path

from hack.cluster import go_builds
from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache, hold_lock, say
from hack.paths import ROOT

MODULE = ROOT / "hack" / "binaries"
PACKAGES = ("tool", "./...")
"""What go.mod names as its tools, and the programs that are here since their projects' own would be larger."""

MINUTES = 10
"""How long a build takes on two cores with nothing cached."""

KUBERNETES_PROCESSES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)
"""Names by which the program `kubernetes` is started: each makes it another process of Kubernetes."""

_KUBERNETES_STAMPS = tuple(
    f"{package}.{variable}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable in ("gitVersion={version}", "gitMajor={major}", "gitMinor={minor}", "gitTreeState=clean")
)
STAMPS = {
    "k8s.io/kubernetes": _KUBERNETES_STAMPS,
    "github.com/cloudnativelabs/kube-router/v2": (
        "github.com/cloudnativelabs/kube-router/v2/pkg/version.Version={version}",
    ),
    "helm.sh/helm/v4": ("helm.sh/helm/v4/internal/version.version={version}",),
}
"""Module -> linker variables for its version, which a plain `go build` does not stamp."""


def programs() -> Path:
    """The directory with all programs, built first when they are not in the cache.

    :raises ClusterError: when the build fails, with the compiler's last lines.
    """
    flags = build_flags()
    directory = cache() / "binaries" / f"programs-{key(MODULE, flags)}"
    if directory.is_dir():
        return directory
    with hold_lock(cache() / "binaries" / ".lock", "builds programs"):
        if not directory.is_dir():
            _build(flags, directory)
    return directory


def build_flags() -> list[str]:
    """Flags of `go build`: no debugging information, and packages beside each other rather than parts of one, both of
    which save work.
    """
    return [
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-gcflags=all=-dwarf=false -c=1",
        "-ldflags",
        linker_flags(),
    ]


def linker_flags() -> str:
    """Stripped, with the versions that go.mod requires."""
    go_mod = (MODULE / "go.mod").read_text()
    words = ["-s", "-w"]
    for module, stamps in STAMPS.items():
        version = required_version(go_mod, module)
        major, minor = version.lstrip("v").split(".")[:2]
        for stamp in stamps:
            words += ["-X", stamp.format(version=version, major=major, minor=minor)]
    return " ".join(words)


def required_version(go_mod: str, module: str) -> str:
    """The version of `module` in the text of a go.mod.

    :raises ClusterError: when it does not require it.
    """
    found = re.search(rf"^(?:require)?\s*{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError(f"go.mod does not require {module}; add it with `go get {module}`")
    return found.group(1)


def key(module: Path, flags: list[str]) -> str:
    """16 hexadecimal digits over a module's files and its build flags."""
    digest = hashlib.sha256(repr(flags).encode())
    for path in sorted(path for path in module.rglob("*") if path.is_file()):
        digest.update(f"\0{path.relative_to(module)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(flags: list[str], directory: Path) -> None:
    for stale in directory.parent.glob(".new-*"):
        shutil.rmtree(stale)
    fresh = directory.parent / ".new-programs"
    fresh.mkdir()
    say(f"building the cluster's programs, once: about {MINUTES} min on two cores when nothing is cached")
    began = time.monotonic()
    go_builds.build("programs", MODULE, PACKAGES, flags, into=fresh)
    (fresh / "server").rename(fresh / "etcd")
    for name in KUBERNETES_PROCESSES:
        (fresh / name).hardlink_to(fresh / "kubernetes")
    fresh.rename(directory)
    say(f"built the programs in {time.monotonic() - began:.0f} s into {directory}")
