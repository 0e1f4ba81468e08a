"""The operator as a process of its own, and what its log says about a span of time."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import processes
from hack.cluster.client import healthy
from hack.operator import NAMESPACE, ROLES
from hack.paths import ROOT

PROGRAM = """
import asyncio, logging, sys, time
from fedsilo_operator import __main__ as program
log = logging.getLogger("fedsilo")
log.setLevel(logging.DEBUG)
operate = program._operate
async def notice():
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.02)
        log.debug("event loop: %.4f s late", time.monotonic() - began - 0.02)
async def observed(args):
    noticing = asyncio.ensure_future(notice())
    await operate(args)
program._operate = observed
sys.exit(program.main())
"""
"""The operator, which also says how late its event loop gets to what is due."""

_RECONCILED_LINE = re.compile(r"DEBUG (\w+): .*: reconciled in ([\d.]+) s, waited ([\d.]+) s")
_DELAY_LINE = re.compile(r"DEBUG event loop: ([\d.]+) s late")
_REQUEST = re.compile(r"DEBUG (GET|POST|PUT|PATCH|DELETE) (\S+): \d+")


@dataclass(frozen=True)
class Span:
    """What the operator did between two points in time.

    :param reconciles: seconds that each took.
    :param waits: seconds that each had waited for a worker.
    :param late: seconds that the event loop was late, every 20 ms.
    :param requests: method and path of each.
    :param cpu: seconds of CPU by process.
    """

    seconds: float
    reconciles: Sequence[float]
    waits: Sequence[float]
    late: Sequence[float]
    requests: Sequence[tuple[str, str]]
    cpu: Mapping[str, float]

    @property
    def writes(self) -> list[str]:
        """Paths that were written to, but for the lease."""
        return [path for method, path in self.requests if method != "GET" and "/leases" not in path]


@dataclass(frozen=True)
class Mark:
    """A point in time, for what happens after it.

    :param position: in the operator's log.
    :param cpu: seconds of CPU by process until then.
    """

    time: float
    position: int
    cpu: Mapping[str, float]


@dataclass
class Process:
    """Running process of the operator.

    :param surroundings: name of the API server that it works with.
    """

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    dashboard: int
    surroundings: str

    def mark(self) -> Mark:
        """The present, for `since`."""
        return Mark(time.monotonic(), self.log.stat().st_size, self._cpu())

    def _cpu(self) -> dict[str, float]:
        others = processes.running(f"api/{self.surroundings}")
        found = {each.owner.rpartition("/")[2]: cpu_seconds(each.pid) for each in others if each.leader}
        return {"operator": cpu_seconds(self.process.pid), **found, "stand-ins": time.process_time()}

    def span_since(self, mark: Mark) -> Span:
        """What it has done since then."""
        then, position = mark.time, mark.position
        cpu = {name: seconds - mark.cpu.get(name, 0.0) for name, seconds in self._cpu().items()}
        with self.log.open("rb") as log:
            log.seek(position)
            text = log.read().decode()
        found = _RECONCILED_LINE.findall(text)
        return Span(
            time.monotonic() - then,
            [float(took) for _, took, _ in found],
            [float(waited) for _, _, waited in found],
            [float(seconds) for seconds in _DELAY_LINE.findall(text)],
            _REQUEST.findall(text),
            cpu,
        )

    def memory(self, name: str) -> float:
        """`VmRSS` or `VmHWM` in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024.0
        raise self._ended_error()

    def ready(self) -> bool:
        """Whether it could lead."""
        self.check()
        return healthy(f"http://127.0.0.1:{self.port}/readyz")

    def check(self) -> None:
        """Return if it runs.

        :raises SystemExit: when it has ended, as an operator does that has lost its lease.
        """
        if self.process.poll() is not None:
            raise self._ended_error()

    def _ended_error(self) -> SystemExit:
        return SystemExit(f"the operator ended:\n{self.log.read_text()[-2000:]}")


@contextmanager
def operator(account: Path, log: Path, surroundings: str) -> Iterator[Process]:
    """Start the operator, and leave no process behind."""
    port, dashboard = _free(), _free()
    images = [f"--{role}-image=fedsilo-{role}:0.1.0" for role in ROLES]
    ports = ["--health-port", str(port), "--dashboard-port", str(dashboard)]
    command = [sys.executable, "-c", PROGRAM, *images, "--namespace", NAMESPACE, *ports]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, "KUBECONFIG": str(account)}, stderr=output, cwd=ROOT
        )
    try:
        yield Process(process, log, port, dashboard, surroundings)
        process.send_signal(signal.SIGTERM)
        if process.wait(30) != 0:
            raise SystemExit(f"the operator failed:\n{log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used (proc(5): fields 14 and 15 of stat); 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
