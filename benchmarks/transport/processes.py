"""Processes of a run: started, ended with this one, and measured from outside."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.process import THREAD_VARIABLES

ROOT = Path(__file__).resolve().parents[2]

PR_SET_PDEATHSIG = 1

POLL_SECONDS = 0.002
"""Between two looks at the file to which a line is added at the end of a round."""

SAMPLE_SECONDS = 0.1
"""Between two looks at what processes have allocated: the kernel keeps the peak only with mapped files in it."""

QUIET_SECONDS, QUIET_TICKS, QUIET_TICKS_OF_SILO = 0.5, 4, 0.3
"""A process is idle that has used so little in such a time: what waits looks at a file now and then, for each silo."""

START_SECONDS = 300.0

START = "start"
"""File in a run's directory that lets the first round begin."""

FIELDS = {"VmRSS": "resident", "VmHWM": "peak", "RssAnon": "anonymous"}


@dataclass
class Usage:
    """What a process has used at one moment.

    :param cpu: seconds since its start.
    :param disk: bytes read from storage and written to it (proc(5), `io`).
    :param memory: bytes that are resident, at their peak since `reset_peak`, and allocated (`RssAnon`).
    """

    cpu: float
    disk: tuple[int, int] = (0, 0)
    memory: dict[str, int] = field(default_factory=dict)


def cpu_seconds(pid: int) -> float:
    """User and system time; 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        # proc(5): fields 14 and 15; the second, the name, may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def usage(pid: int) -> Usage:
    """What a process has used until now: CPU time, storage and memory."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Usage(cpu_seconds(pid), (int(lines["read_bytes"]), int(lines["write_bytes"])), memory(pid))


def memory(pid: int) -> dict[str, int]:
    """Bytes by the names of `FIELDS`."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in FIELDS:
            found[FIELDS[name]] = int(value.split()[0]) * 1024
    return found


def proportional(pid: int) -> int:
    """Bytes of memory with its share of what it has in common with others (PSS); slow for a large process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak(pid: int) -> None:
    """Let the peak of what is resident begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def fork_each(groups: Sequence[list[str]], work: Callable[[list[str]], None]) -> int:
    """Do the work of each group in a process of its own, and say their ids on standard output; the worst exit code."""
    pids = []
    for group in groups:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                end_with_parent()
                in_threads(group, work)
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    print(json.dumps(pids), flush=True)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids)


def in_threads(names: list[str], work: Callable[[list[str]], None]) -> None:
    """Do the work for each name at the same time; for a single one in this thread."""
    if len(names) == 1:
        work(names)
        return
    failures: list[BaseException] = []

    def one(name: str) -> None:
        try:
            work([name])
        except BaseException as error:
            traceback.print_exc()
            failures.append(error)

    threads = [threading.Thread(target=one, args=(name,), name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def shared_out(names: Sequence[str], processes: int) -> list[list[str]]:
    """The names in so many groups, or fewer, of about the same size."""
    return [group for number in range(processes) if (group := list(names[number::processes]))]


@dataclass
class Program:
    """A program of a run, and the processes that do its work.

    :ivar pids: of these; the program itself is not among them if it only forks.
    """

    role: str
    process: subprocess.Popen[bytes]
    log: Path
    pids: list[int]

    def wait(self) -> None:
        """Wait until it has ended.

        :raises SystemExit: when it does not end well, or not at all.
        """
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{self.role} does not end within {START_SECONDS:g} s") from None
        self.require_running()

    def require_running(self) -> None:
        """Return if it runs or has ended well.

        :raises SystemExit: with the end of its log.
        """
        if self.process.poll():
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
            raise SystemExit(f"{self.role} ended with exit code {self.process.returncode}\n{tail}")


@contextmanager
def start_program(role: str, arguments: Sequence[str], log: Path, forks: bool) -> Iterator[Program]:
    """Start `python ARGUMENTS` in the repository's root, and leave nothing of it behind.

    :param forks: whether it says the ids of the processes that do the work.
    """
    environment = dict(os.environ)
    if forks:  # what is forked must have no threads yet
        environment |= dict.fromkeys(THREAD_VARIABLES, "1")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            preexec_fn=end_with_parent,
        )
    program = Program(role, process, log, [process.pid])
    try:
        if forks:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                process.wait()
                program.require_running()
            program.pids = json.loads(line)
        yield program
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def wait_until_quiet(programs: Sequence[Program], silos: int) -> None:
    """Return when all have done what they do at their start.

    :param silos: that a process has at most.
    """
    until, before = time.monotonic() + START_SECONDS, dict[int, float]()
    least = (QUIET_TICKS + QUIET_TICKS_OF_SILO * silos) / os.sysconf("SC_CLK_TCK")
    while time.monotonic() < until:
        for program in programs:
            program.require_running()
        now = {pid: cpu_seconds(pid) for program in programs for pid in program.pids}
        if before and all(now[pid] - before[pid] < least for pid in now):
            return
        before = now
        time.sleep(QUIET_SECONDS)
    raise SystemExit(f"the processes do not come to rest within {START_SECONDS:g} s")


@dataclass(frozen=True)
class Boundary:
    """The end of a round: when it was, and the CPU seconds of each process so far."""

    moment: float
    cpu: Mapping[int, float]


class Watch:
    """Rounds of a run as they end, and the allocated memory of its processes meanwhile.

    :param lines: file that gets a line at the end of each round.
    :ivar allocated: process -> most bytes that it had allocated (`RssAnon`), as far as was seen.
    """

    def __init__(self, programs: Sequence[Program], lines: Path) -> None:
        self._programs = programs
        self._lines = lines
        self._pids = [pid for program in programs for pid in program.pids]
        self._sampled = 0.0
        self._seen = (0, 0), 0
        self._past = 0
        self.allocated: dict[int, int] = {}

    def rounds(self, count: int) -> list[Boundary]:
        """The ends of the next rounds, so many of them.

        :raises SystemExit: when two end at once, or a program has ended.
        """
        found: list[Boundary] = []
        while len(found) < count:
            time.sleep(POLL_SECONDS)
            for program in self._programs:
                program.require_running()
            if (now := self._count()) != self._past:
                found.append(Boundary(time.monotonic(), {pid: cpu_seconds(pid) for pid in self._pids}))
                if now - self._past > 1:
                    raise SystemExit(
                        f"{now - self._past} rounds within {POLL_SECONDS} s; the model is too small"
                    )
                self._past = now
            self._sample()
        return found

    def _count(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            found = self._lines.stat()
            version = found.st_ino, found.st_size
            if version != self._seen[0]:
                self._seen = version, self._lines.read_bytes().count(b"\n")
        return self._seen[1]

    def _sample(self) -> None:
        if time.monotonic() - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = time.monotonic()
        for pid in self._pids:
            with contextlib.suppress(OSError, KeyError):
                self.allocated[pid] = max(self.allocated.get(pid, 0), memory(pid)["anonymous"])
