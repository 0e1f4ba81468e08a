"""What an attack costs the process that is attacked: processor time and memory, as the kernel counts them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MB = 1e6


@dataclass(frozen=True)
class Cost:
    """What a process has used.

    :param processor: seconds, of all its threads.
    :param peak: largest resident memory, bytes.
    """

    processor: float
    peak: int


class Meter:
    """Measures a process from its creation on."""

    def __init__(self, pid: int) -> None:
        self._directory = Path(f"/proc/{pid}")
        (self._directory / "clear_refs").write_text("5")  # resets VmHWM (proc(5))
        self._began = self._processor()

    def read(self) -> Cost:
        """What it has used since."""
        status = (self._directory / "status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return Cost(self._processor() - self._began, int(line.split()[1]) * 1024)

    def _processor(self) -> float:
        fields = (self._directory / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
