"""Performs a process's durable steps, and the fault at one of them."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.files.durable import DiskStep
from tests.faults import fault as kinds
from tests.faults.fault import Fault, step_name
from tests.faults.page_cache import PageCache

FULL_SECONDS = 0.3
"""Time for which a disk stays full."""

WRONG_CLOCK_SECONDS = 0.5
"""Time for which a clock is wrong: then it is set, as a time server does."""

JUMP_SECONDS = 600.0


@dataclass(frozen=True)
class Control:
    """Files by which the processes of one run and its supervisor know of each other.

    :param directory: outside of every volume.
    """

    directory: Path

    def steps(self, role: str) -> Path:
        """The steps that a role has taken, a line each."""
        return self.directory / f"{role}.steps"

    def pid(self, role: str) -> Path:
        return self.directory / f"{role}.pid"

    @property
    def fired_marker(self) -> Path:
        """Is there once the fault has been injected; the file that it is about."""
        return self.directory / "fired"

    def record(self, machine: str) -> Path:
        """What is on the disk of a machine that will lose its power."""
        return self.directory / f"{machine}.disk"


@dataclass
class Injector:
    """`fedsilo.files.durable.intercept` of one process.

    :param volume: directory of the process's machine.
    :param fault: what happens to this role, unless it has happened before.
    :param cache: what is on the machine's disk, if its power will be cut.
    """

    role: str
    volume: Path
    control: Control
    fault: Fault | None
    cache: PageCache | None
    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _full_until: float = 0.0
    _sizes: dict[Path, int] = field(default_factory=dict)
    """Size of each file when it was synced last."""

    def __call__(self, step: DiskStep, perform: Callable[[], None]) -> None:
        """Perform a step, or do to it what the fault says."""
        name = step_name(step, self.volume)
        with self._lock, self.control.steps(self.role).open("a") as steps:
            self._counts[name] += 1
            steps.write(f"{name} #{self._counts[name]}\n")
            fault = self.fault
            here = fault is not None and (fault.place.step, fault.place.occurrence) == (
                name,
                self._counts[name],
            )
        if step.operation in kinds.NEEDS_SPACE and time.monotonic() < self._full_until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(step.path))
        if here:
            assert fault is not None
            self._inject(fault, step, perform)
        else:
            self._perform(step, perform)

    def _perform(self, step: DiskStep, perform: Callable[[], None]) -> None:
        if self.cache is None:
            perform()
        else:
            self.cache.take(step, perform)
        if step.operation == "sync":
            self._sizes[step.path] = step.path.stat().st_size

    def _inject(self, fault: Fault, step: DiskStep, perform: Callable[[], None]) -> None:
        chance = random.Random(fault.seed)
        match fault.kind:
            case kinds.KILL_BEFORE:
                self._die(step)
            case kinds.KILL_AFTER | kinds.OTHER_ADDRESS:
                self._perform(step, perform)
                self._die(step)
            case kinds.FLIPPED_BIT:
                self._perform(step, perform)
                self._die(step, *self._other_roles())
            case kinds.POWER_CUT:
                if (
                    chance.random() < 0.75
                ):  # before the step or after it: mostly after, when less has been synced
                    self._perform(step, perform)
                self._die(step, *self._other_roles())
            case kinds.TORN_WRITE:
                self._tear(step, perform, chance)
                self._die(step)
            case kinds.FULL_DISK:
                self._note(step)
                self._full_until = time.monotonic() + FULL_SECONDS
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(step.path))
            case kinds.IO_ERROR:
                self._note(step)
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(step.path))
            case kinds.CLOCK_JUMP:
                self._note(step)
                jump_clock(JUMP_SECONDS if chance.random() < 0.5 else -JUMP_SECONDS, WRONG_CLOCK_SECONDS)
                self._perform(step, perform)

    def _note(self, step: DiskStep) -> None:
        self.control.fired_marker.write_text(str(step.target or step.path))

    def _other_roles(self) -> list[str]:
        """The other roles of this machine."""
        machine, _, own = self.role.partition(" ")
        return [f"{machine} {role}" for role in ("guard", "trainer") if own and role != own]

    def _die(self, step: DiskStep, *others: str) -> None:
        """Kill this process, and others with it."""
        self._note(step)
        for role in others:
            path = self.control.pid(role)
            if path.exists():
                kill(int(path.read_text()))
        kill(os.getpid())

    def _tear(self, step: DiskStep, perform: Callable[[], None], chance: random.Random) -> None:
        """Leave a part of what is written."""
        before = step.path.stat().st_size if step.path.exists() else 0
        if step.operation == "append":
            self._perform(step, perform)
        else:
            before = self._sizes.get(step.path, 0)
            if step.path.suffix == ".jsonl":  # its last line was written by now
                before = max(before, step.path.read_bytes()[:-1].rfind(b"\n") + 1)
        size = step.path.stat().st_size
        if size > before:
            os.truncate(step.path, chance.randint(before, size - 1))


def kill(pid: int) -> None:
    """End a process at once."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def jump_clock(offset: float, duration: float) -> None:
    """Make this process's wall clock wrong by `offset` seconds for some time."""
    true_time, until = time.time, time.monotonic() + duration
    time.time = lambda: true_time() + (offset if time.monotonic() < until else 0.0)


def flip_bit(path: Path, chance: random.Random) -> None:
    """Change one bit of a file, which keeps its times: no process has changed it."""
    content, status = bytearray(path.read_bytes()), path.stat()
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
