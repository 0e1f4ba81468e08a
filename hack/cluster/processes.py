"""Long-lived processes, started in a session of their own and found again by a variable in their environment.

Every process carries its owner's name in one environment variable, and so do its children. That replaces files with
process numbers: nothing can be lost when the starter is killed, and a number that the kernel gave to somebody else is
never mistaken for ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError

MARK = "FEDSILO_CLUSTER"

_children: dict[
    str, list[subprocess.Popen[bytes]]
] = {}  # by owner: what this very process started must be reaped


@dataclass(frozen=True)
class Process:
    """A running process of ours.

    :param owner: `node/etcd` or `api/<name>/etcd`.
    :param leader: whether it was started by us; otherwise it is a descendant.
    :param seconds: how long it has been running.
    """

    owner: str
    pid: int
    leader: bool
    seconds: float


def start(
    owner: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Start a process that outlives its starter; output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    marked = {**os.environ, **(environment or {}), MARK: owner}
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=marked,
            cwd="/",
            start_new_session=True,
        )
    _children.setdefault(owner, []).append(child)


def running(prefix: str = "") -> list[Process]:
    """Processes whose owner is `prefix` or lies below it; all of ours without one."""
    found = []
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            environment = (directory / "environ").read_bytes()
            stat = (directory / "stat").read_text()
        except OSError:
            continue  # it has ended, or is another user's
        owner = owner_in(environment)
        if owner is not None and _within(owner, prefix):
            pid = int(directory.name)
            session, started = session_and_start(stat)
            found.append(Process(owner, pid, session == pid, uptime - started))
    return sorted(found, key=lambda process: process.pid)


def _within(owner: str, prefix: str) -> bool:
    return not prefix or owner == prefix or owner.startswith(prefix + "/")


def owner_in(environment: bytes) -> str | None:
    """The owner's name in the content of /proc/<pid>/environ; None for a process that is not ours."""
    for variable in environment.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == MARK.encode():
            return value.decode(errors="replace")
    return None


def session_and_start(stat: str) -> tuple[int, float]:
    """Session and start, in seconds since boot, from /proc/<pid>/stat (proc(5): fields 6 and 22)."""
    fields = stat.rpartition(")")[2].split()  # the command in parentheses may contain anything
    return int(fields[3]), int(fields[19]) / os.sysconf("SC_CLK_TCK")


def kill_until_gone(pids: Callable[[], list[int]], what: str, seconds: float = 20.0) -> int:
    """Kill what `pids` lists, again and again until it lists nothing; how many there were.

    Nothing here needs a grace period: etcd and containerd recover from a kill, and kube-apiserver would take a minute.

    :raises ClusterError: when some are still there after `seconds`.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while alive := pids():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: processes {alive} do not end; look at them with ps")
        for pid in alive:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    return len(killed)


def end(prefix: str) -> int:
    """Kill every process whose owner is `prefix` or lies below it; how many there were."""
    killed = kill_until_gone(lambda: [process.pid for process in running(prefix)], prefix)
    for owner in [owner for owner in _children if _within(owner, prefix)]:
        for child in _children.pop(owner):
            child.wait()
    return killed


def wait_until(
    holds: Callable[[], bool], what: str, seconds: float, owners: Mapping[str, Path], every: float = 0.1
) -> None:
    """Wait for something that running processes bring about.

    :param owners: the processes that must stay alive meanwhile, with their logs.
    :raises ClusterError: when one of them ends, or time is over; with the last lines of the logs.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        alive = _live_owners()
        if dead := [owner for owner in owners if owner not in alive]:
            raise ClusterError(f"{dead[0]} has ended while waiting for {what}\n{_tail(owners[dead[0]])}")
        if time.monotonic() > deadline:
            logs = "\n".join(_tail(log) for log in owners.values())
            raise ClusterError(f"{what}: not within {seconds:.0f} s\n{logs}")
        time.sleep(every)


def _live_owners() -> set[str]:
    """Owners with a running leader.

    What this very process started is asked directly: while a program is being loaded, its environment reads empty.
    """
    found = {process.owner for process in running() if process.leader}
    return found | {
        owner for owner, children in _children.items() if any(child.poll() is None for child in children)
    }


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
    return "\n".join([f"last lines of {log}:", *(f"  {line[:400]}" for line in lines)])
