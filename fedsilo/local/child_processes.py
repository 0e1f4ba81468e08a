"""The processes of a local run: forked from one warmed process, started again after a crash, never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from fedsilo.errors import FedsiloError, FileDamaged
from fedsilo.files.durable import write_visibly
from fedsilo.files.json_files import read_json
from fedsilo.process import TERMINATION_LOG_VARIABLE

FINAL_EXIT_CODES = frozenset({0, 2, 3, 4, 5, 6, 7})
"""Exit codes after which starting again cannot help, see `fedsilo.errors`."""

GRACE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL."""

BACKOFF_SECONDS = 0.5
"""Pause before a crashed process is started again, times the number of its crashes."""

POLL_SECONDS = 0.02
"""Time between two checks of processes that were asked to end."""

RESPONSE_SECONDS = 60.0
"""Time in which the fork server answers; one that does not is taken for dead."""

FORK_SERVER = "fedsilo.local.fork_server"
"""Module that runs as the warmed process."""

TITLE_PADDING = " " * 4096
"""A padding argument, over which forked processes write their own command lines."""


class StartFailed(FedsiloError):
    """A process could not be forked; trying again may help."""


PROXY_VARIABLES = frozenset({"https_proxy", "http_proxy", "all_proxy"})
"""Variables, in small letters, that may hold user and password."""

TRACKING_PREFIX = "MLFLOW_"
"""Beginning of the names of others that do."""


def logins() -> dict[str, str]:
    """The variables that may hold user and password, which job code must not see."""
    return {name: value for name, value in os.environ.items() if _may_hold_login(name)}


def _may_hold_login(name: str) -> bool:
    return name.lower() in PROXY_VARIABLES or name.startswith(TRACKING_PREFIX)


class ForkServerClient:
    """The warmed process of `fedsilo.local.fork_server`, seen from the run; several jobs may share one.

    It warms up while the caller does other things. One that dies takes all processes with it, which counts as a
    crash of each of them, or of the one that it was to start; they are started again from a new one.

    :param label: what `ps` shows beside its name.
    """

    _ready: bool
    _closed: bool
    _process: subprocess.Popen[bytes]
    _requests: IO[bytes]
    _answers: IO[bytes]
    _errors: IO[bytes]

    def __init__(self, label: str) -> None:
        self._label = label
        self._running: set[int] = set()
        self._ended: dict[int, int] = {}
        self._warm()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self._process.pid

    def is_ready(self, seconds: float = 0.0) -> bool:
        """Whether processes can be started, waiting at most so long for it; one that has died is replaced.

        :raises FedsiloError: when it ended before it was ready; the next call begins another.
        """
        if self._closed:
            self._warm()
        if not self._ready and select.select([self._answers], [], [], seconds)[0]:
            if not self._answers.readline():
                reason = self._last_line()
                self.close()
                raise FedsiloError(f"the process that starts all others ended: {reason}")
            self._ready = True
        return self._ready

    def start(
        self,
        program: str,
        arguments: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        modules: Sequence[str] = (),
    ) -> int:
        """Fork a process that runs `program.main(arguments)`; its id.

        :param program: name of a module.
        :param environment: variables that this process has and others do not.
        :param modules: names of those that it finds imported, as do all that are started after it.
        :raises StartFailed: when a module cannot be imported, the system permits no more processes, or the server has
            died.
        """
        request = {
            "program": program,
            "arguments": list(arguments),
            "log": str(log_file),
            "environment": dict(environment or {}),
            "modules": list(modules),
        }
        answer: dict[str, Any] | None = self._ask(request)
        if answer is None:
            reason = self._last_line()
            self.close()
            raise StartFailed(f"{program} could not be started: {reason}")
        if "error" in answer:
            raise StartFailed(f"{program} could not be started: {answer['error']}")
        pid: int = answer["pid"]
        self._ended.pop(pid, None)
        self._running.add(pid)
        return pid

    def poll(self) -> None:
        """Take note of processes that have ended since the last call; until then each keeps its id."""
        if not self._ready or (not self._running and self._process.poll() is None):
            return
        ended: dict[str, int] | None = self._ask({})
        if ended is None:
            self.close()
        else:
            self._ended |= {int(pid): code for pid, code in ended.items()}
            self._running -= self._ended.keys()

    def exit_code(self, pid: int) -> int | None:
        """Exit code of a process, None as long as it runs."""
        return self._ended.get(pid)

    def close(self) -> None:
        """End it, and with it whatever it has started and what that has started; `is_ready` begins another."""
        if self._closed:
            return
        if self._ready:
            # The end of its input: it kills everything below it. Before it is ready, there is nothing.
            with contextlib.suppress(BrokenPipeError):
                self._requests.close()
            # Its answers end with it, which is noticed sooner than `wait` with a limit would.
            select.select([self._answers], [], [], GRACE_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        self._closed, self._ready = True, False
        self._process.kill()
        self._process.wait()
        for pid in self._running:
            _kill_orphan(pid)
        self._ended |= dict.fromkeys(self._running, -signal.SIGKILL)
        self._running.clear()
        for stream in (self._requests, self._answers, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _warm(self) -> None:
        self._ready = self._closed = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the server has died)
        self._process = subprocess.Popen(
            # -P: the current directory does not come first, where its files would stand in for Python's own.
            [sys.executable, "-P", "-m", FORK_SERVER, self._label, TITLE_PADDING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Trainers are forked from it too, and job code has no use for the logins at a proxy or an MLflow server.
            env={name: value for name, value in os.environ.items() if not _may_hold_login(name)},
            # Ctrl-C in the terminal is for the run, which then ends its processes in order.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def _ask(self, request: dict[str, Any]) -> Any:
        """The answer to a request; None from a server that is dead."""
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            answered = select.select([self._answers], [], [], RESPONSE_SECONDS)[0]
            line = self._answers.readline() if answered else b""
        except BrokenPipeError:
            return None
        except BaseException:
            # Its answer could come when no request is open.
            self.close()
            raise
        return json.loads(line) if line else None

    def _last_line(self) -> str:
        """How a server ended that is dead, or does not answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._process.kill()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next(filter(None, reversed(lines)), "it said nothing")
        return f"exit code {self._process.wait()}, {said}"


def _kill_orphan(pid: int) -> None:
    """Kill a process whose parent has died, and its group; nobody else gets its id so soon."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


@dataclass
class ChildProcess:
    """One process of the federation.

    :param program: module whose `main(arguments)` it runs.
    :param backoff_limit: crashes after which it is given up.
    :param environment: variables that it has and others do not.
    :param modules: names of those that it finds imported.
    :param last_words: file in which it leaves why it failed; None for one that runs a job's code, which could write
        anything there.
    """

    server: ForkServerClient
    name: str
    program: str
    arguments: Sequence[str]
    log_file: Path
    backoff_limit: int
    crashes: int = 0
    exit_code: int | None = None
    pid: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str] = ()
    last_words: Path | None = None
    _not_before: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it has ended for good."""
        return self.exit_code is not None

    @property
    def cause(self) -> tuple[str, str] | None:
        """Reason and message of the error that ended it, by its own last words; None where it left none."""
        if self.last_words is None or not _has_bytes(self.last_words):
            return None
        try:
            said = read_json(self.last_words)
        except FileDamaged:  # it was killed while it wrote
            return None
        return said["reason"], said["message"]

    def supervise(self) -> None:
        """Take note of an end that the server has noticed, and start again where that may help."""
        if self.ended:
            return
        if self.pid is None:
            if time.monotonic() >= self._not_before and self.server.is_ready():
                # It ends by itself when this process does, since it watches its standard input.
                arguments, environment = [*self.arguments, "--exit-with-parent"], dict(self.environment)
                if self.last_words is not None:
                    write_visibly(self.last_words, b"")  # a program writes into a file that is there
                    environment[TERMINATION_LOG_VARIABLE] = str(self.last_words)
                try:
                    self.pid = self.server.start(
                        self.program, arguments, self.log_file, environment, self.modules
                    )
                except StartFailed as error:
                    with self.log_file.open("a", encoding="utf-8") as log:
                        print(f"{error.reason}: {error}", file=log)
                    self._note_crash(FedsiloError.exit_code)
            return
        code = self.server.exit_code(self.pid)
        if code is None:
            return
        self.pid = None
        if code in FINAL_EXIT_CODES:
            self.exit_code = code
            return
        self._note_crash(code)

    def _note_crash(self, code: int) -> None:
        self.crashes += 1
        if self.crashes > self.backoff_limit:
            self.exit_code = code
        self._not_before = time.monotonic() + BACKOFF_SECONDS * self.crashes

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.pid is not None and self.server.exit_code(self.pid) is None:
            os.kill(self.pid, number)


def end_all(processes: Sequence[ChildProcess], server: ForkServerClient) -> None:
    """End every process that still runs: SIGTERM, a grace period, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            process.signal(number)
        until = time.monotonic() + GRACE_SECONDS
        while _any_runs(processes, server) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    for process in processes:
        if process.pid is not None and process.exit_code is None:
            process.exit_code = server.exit_code(process.pid)


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _any_runs(processes: Sequence[ChildProcess], server: ForkServerClient) -> bool:
    server.poll()
    return any(process.pid is not None and server.exit_code(process.pid) is None for process in processes)
