"""The processes of a local run: started, started again after a crash, and never left behind."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger("fedsilo.run")

FINAL = frozenset({0, 2, 3, 4, 5, 6, 7})
"""Exit codes after which starting again cannot help, see `fedsilo.errors`."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

PAUSE = 0.5
"""Seconds before a crashed process is started again, times the number of crashes."""


@dataclass
class ChildProcess:
    """One process of the federation.

    :param module: what `python -m` runs.
    :param backoff_limit: crashes after which it is given up.
    """

    name: str
    module: str
    arguments: Sequence[str]
    log_file: Path
    backoff_limit: int
    crashes: int = 0
    exit_code: int | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _not_before: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def ended(self) -> bool:
        """Whether it will not run again."""
        return self.exit_code is not None

    def start(self) -> None:
        """Start the process; it ends by itself when this one does, since it watches its standard input."""
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments, "--exit-with-parent"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal is for the run, which then ends its processes in order.
                start_new_session=True,
            )

    def supervise(self) -> None:
        """Notice an end, and start again where that may help."""
        if self.ended:
            return
        if self._process is None:
            if time.monotonic() >= self._not_before:
                self.start()
            return
        code = self._process.poll()
        if code is None:
            return
        self._forget()
        if code in FINAL:
            self.exit_code = code
            return
        self.crashes += 1
        if self.crashes > self.backoff_limit:
            self.exit_code = code
        self._not_before = time.monotonic() + PAUSE * self.crashes

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait_or_kill(self, until: float) -> None:
        """Wait for the end, then insist."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.exit_code = self._process.returncode if self.exit_code is None else self.exit_code
        self._forget()

    def _forget(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None


def end_all(parts: Sequence[ChildProcess]) -> None:
    """End every process that still runs."""
    for part in parts:
        part.terminate()
    until = time.monotonic() + GRACE
    for part in parts:
        part.wait_or_kill(until)
