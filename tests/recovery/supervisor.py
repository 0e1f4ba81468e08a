"""Processes that are started again as soon as they die, as a kubelet and systemd do."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.local.child_processes import FINAL_EXIT_CODES, ForkServerClient

POLL_SECONDS = 0.01

ROLE = "tests.recovery.role"

MAX_CRASHES = 4
"""Ends of a process that nobody has killed, after which it will never run."""


@dataclass
class Part:
    """One process of the federation.

    :param endless: it serves until it is told to end: an end of its own is a crash, whatever the code.
    :ivar down: it is not started again as long as this holds.
    :ivar code: exit code of its end for good.
    """

    name: str
    program: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False
    down: bool = False
    crashes: int = 0
    code: int | None = None
    pid: int | None = None

    @property
    def hopeless(self) -> bool:
        """Whether it ends again and again."""
        return self.crashes > MAX_CRASHES


class Supervisor:
    """Supervisor that starts parts again as soon as they die.

    :param logs: directory with a file for each part.
    """

    def __init__(self, server: ForkServerClient, logs: Path, parts: Sequence[Part]) -> None:
        self.parts = {part.name: part for part in parts}
        self._server = server
        self._logs = logs
        self._dying: set[int] = set()

    def step(self) -> None:
        """Take note of ends, and start what should run."""
        self._server.poll()
        for part in self.parts.values():
            self._note_end(part)
            if part.pid is None and part.code is None and not part.down and not part.hopeless:
                arguments = [json.dumps(dict(part.environment)), part.program, *part.arguments]
                part.pid = self._server.start(ROLE, arguments, self._logs / f"{part.name}.log")

    def kill(self, name: str) -> bool:
        """Send SIGKILL to a part's process; whether there was anything to kill."""
        part = self.parts[name]
        if part.pid is None or self._server.exit_code(part.pid) is not None:
            return False
        self._dying.add(part.pid)
        os.kill(part.pid, signal.SIGKILL)
        return True

    def end(self) -> None:
        """Kill everything that runs; nothing is left behind."""
        for part in self.parts.values():
            part.down = True
            self.kill(part.name)
        while any(part.pid is not None for part in self.parts.values()):
            self.step()
            time.sleep(POLL_SECONDS)

    def _note_end(self, part: Part) -> None:
        if part.pid is None or (code := self._server.exit_code(part.pid)) is None:
            return
        if part.pid in self._dying:
            self._dying.discard(part.pid)
        elif code in FINAL_EXIT_CODES and not part.endless:
            part.code = code
        else:
            part.crashes += 1
        part.pid = None
