"""Runs the parts of the GPU benchmark, each in a process of its own, which ends when its time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu.cases import Part, Setting, Size
from benchmarks.gpu.parts import IN_ALL
from benchmarks.gpu.records import Outcome, Record

ROOT = Path(__file__).resolve().parents[2]
LEAST_SECONDS = 5.0
"""A part that has less left is not begun."""

MessageCallback = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One run of the command.

    :param setting: of all its parts; each part's `ends` follows from its limit.
    :param environment: of its processes.
    :param told: shown to the person who waits, a line each.
    :param began: when the command was typed, as `time.time` counts.
    """

    setting: Setting
    environment: Mapping[str, str]
    told: MessageCallback
    began: float

    def run(self, parts: Iterable[Part], record: Record) -> None:
        """Run what the record does not have yet; it is on file after every case."""
        ends = self.began + IN_ALL[self.setting.size]
        for part in parts:
            seconds = min(part.limits[self.setting.size], ends - time.time())
            record.late.pop(part.name, None)
            self.told(f"{part.title} (at most {max(seconds, 0):.0f} s)")
            if seconds < LEAST_SECONDS:
                record.late[part.name] = "not begun: the run's time was over"
            else:
                self._run(part, seconds, record)
            if part.name in record.late:
                self.told(f"  {record.late[part.name]}")
            record.write(self.setting.into)

    def _run(self, part: Part, seconds: float, record: Record) -> None:
        waiting: list[str] = []
        with _process(
            part, seconds, self.setting, record.finished_cases(part.name), self.environment
        ) as child:
            for said in child.lines:
                if isinstance(said, list):
                    waiting = said
                    continue
                name, outcome = said["case"], outcome_of(part, said, self.setting.size)
                waiting.remove(name)
                record.parts.setdefault(part.name, {})[name] = outcome
                record.write(self.setting.into)
                self.told(f"  {name}: {summary(outcome)}")
        if child.late:
            record.late[part.name] = f"not finished in {seconds:.0f} s: {', '.join(waiting) or 'its start'}"
        elif waiting or child.code:
            record.late[part.name] = (
                f"ended with exit code {child.code} in {', '.join(waiting[:1]) or 'its start'}: {child.last_words()}"
            )


def outcome_of(part: Part, said: Mapping[str, Any], size: Size) -> Outcome:
    """From a line of the process to what is kept; figures of a reduced run have no goals."""
    figures = said.get("figures")
    missed = () if figures is None or size == "reduced" else tuple(map(str, part.missed_goals(figures)))
    unfinished = said.get("unfinished", False)
    return Outcome(said["seconds"], figures, said.get("skipped"), said.get("error"), missed, unfinished)


def summary(outcome: Outcome) -> str:
    """One line for the terminal."""
    if outcome.figures is None:
        return f"skipped: {outcome.skipped}" if outcome.skipped is not None else f"FAILED: {outcome.error}"
    figures = ", ".join(f"{name} {figure_text(value)}" for name, value in outcome.figures.items())
    return f"{figures}  [{outcome.seconds:.1f} s]" + "".join(f"  MISSES {goal}" for goal in outcome.goals)


def figure_text(value: object) -> str:
    """A figure as a person reads it; of a curve the last value."""
    if isinstance(value, list):
        return f"{figure_text(value[-1])} after {len(value)}" if value else "none"
    if isinstance(value, float):
        return (
            f"{value:.1e}"
            if value and abs(value) < 1e-3
            else f"{value:,.4g}"
            if abs(value) < 1e4
            else f"{value:,.0f}"
        )
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class _Child:
    """Process that runs one part of the benchmark.

    :ivar late: whether its time was over before it was.
    :ivar code: exit status, once it has ended.
    """

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self.late = False
        self.code: int | None = None
        self._process, self._log = process, log

    @property
    def lines(self) -> Iterator[Any]:
        """What it says, a value of JSON each."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it was killed while it wrote
                yield json.loads(line)
        self.code = self._process.wait()

    def end(self) -> None:
        """End it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def time_is_over(self) -> None:
        """End it because it is late."""
        self.late = True
        self.end()

    def last_words(self) -> str:
        """The last line of its log."""
        self._log.seek(0)
        lines = self._log.read().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


@contextmanager
def _process(
    part: Part, seconds: float, setting: Setting, done: Sequence[str], environment: Mapping[str, str]
) -> Iterator[_Child]:
    """The part's process, which is gone after the `with` block with all that it has started."""
    asked = {
        "module": part.module,
        "device": setting.device,
        "size": setting.size,
        "into": str(setting.into),
        "data": str(setting.data),
        "ends": time.time() + seconds,
        "done": done,
    }
    command = [sys.executable, "-m", "benchmarks.gpu.child", json.dumps(asked)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=dict(environment),
            start_new_session=True,
        )
        child = _Child(process, log)
        timer = threading.Timer(seconds, child.time_is_over)
        timer.start()
        try:
            yield child
        finally:
            timer.cancel()
            child.end()
            assert process.stdout is not None
            process.stdout.close()
