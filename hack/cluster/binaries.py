"""Programs built from the Go modules in hack/binaries, and cached.

A cache entry is named after its module's files and build flags. It is built beside its place and renamed when it is
complete, so an interruption leaves nothing that could be taken for complete.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import go_builds
from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache, hold_lock, say
from hack.paths import ROOT

MODULES = ROOT / "hack" / "binaries"


@dataclass(frozen=True)
class Tool:
    """One module and what is built from it.

    :param package: `tool` for what go.mod names as its tools.
    :param minutes: how long a build takes on two cores with nothing cached.
    :param version_of: the required module whose version the programs report.
    :param stamps: linker variables; `{version}`, `{major}` and `{minor}` are filled in.
    :param rename: programs whose name go build does not get right.
    """

    name: str
    package: str = "tool"
    minutes: float = 0.5
    version_of: str = ""
    stamps: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()

    @property
    def module(self) -> Path:
        return MODULES / self.name


_KUBERNETES_STAMPS = tuple(
    f"{package}.{variable}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable in ("gitVersion={version}", "gitMajor={major}", "gitMinor={minor}", "gitTreeState=clean")
)
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("etcd", minutes=1, rename=(("server", "etcd"),)),
        Tool("kubernetes", minutes=8, version_of="k8s.io/kubernetes", stamps=_KUBERNETES_STAMPS),
        Tool(
            "kube-router",
            minutes=1.5,
            version_of="github.com/cloudnativelabs/kube-router/v2",
            stamps=("github.com/cloudnativelabs/kube-router/v2/pkg/version.Version={version}",),
        ),
        Tool("coredns", minutes=2),
        Tool(
            "helm",
            minutes=2,
            version_of="helm.sh/helm/v4",
            stamps=("helm.sh/helm/v4/internal/version.version={version}",),
        ),
        Tool("pause", package=".", minutes=0.2),
    )
}


def programs(name: str) -> Path:
    """The directory with a tool's programs, built first when they are not in the cache.

    :raises ClusterError: when the build fails, with the compiler's last lines.
    """
    tool = TOOLS[name]
    directory = _directory(tool)
    if directory.is_dir():
        return directory
    with hold_lock(cache() / "binaries" / ".lock", "builds programs"):
        if not directory.is_dir():
            _build(tool, directory)
    return directory


def linker_flags(tool: Tool) -> str:
    """Stripped, with the versions that go.mod requires, which a plain `go build` does not stamp."""
    words = ["-s", "-w"]
    if tool.version_of:
        version = required_version((tool.module / "go.mod").read_text(), tool.version_of)
        major, minor = version.lstrip("v").split(".")[:2]
        for stamp in tool.stamps:
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
    for path in sorted(module.iterdir()):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def announce(names: Collection[str]) -> None:
    """Say which programs have to be built, and how long that takes."""
    missing = [name for name in names if not _directory(TOOLS[name]).is_dir()]
    if missing:
        minutes = sum(TOOLS[name].minutes for name in missing)
        say(f"{len(missing)} of {len(names)} programs are not in the cache: {', '.join(missing)}")
        say(f"to build them takes about {minutes:.0f} minutes of two cores, once")


def _flags(tool: Tool) -> list[str]:
    return ["-mod=readonly", "-trimpath", "-ldflags", linker_flags(tool)]


def _directory(tool: Tool) -> Path:
    return cache() / "binaries" / f"{tool.name}-{key(tool.module, _flags(tool))}"


def _build(tool: Tool, directory: Path) -> None:
    for stale in directory.parent.glob(".new-*"):
        shutil.rmtree(stale)
    fresh = directory.parent / f".new-{tool.name}"
    fresh.mkdir()
    say(f"building {tool.name}: about {tool.minutes:g} min on two cores when nothing is cached")
    began = time.monotonic()
    go_builds.build(tool.name, tool.module, tool.package, _flags(tool), into=fresh)
    for built, wanted in tool.rename:
        (fresh / built).rename(fresh / wanted)
    fresh.rename(directory)
    say(f"built {tool.name} in {time.monotonic() - began:.0f} s into {directory}")
