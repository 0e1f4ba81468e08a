"""Processes of the tests, forked from one warmed process as those of `fedsilo run` are.

An interpreter that imports a program of ours takes one or two seconds of a processor, a fork of the warmed process a
tenth of that. Whatever is about the interpreter itself, its paths or what stands before it is started with `python -m`.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any
from unittest import mock

from fedsilo.local.child_processes import ForkServerClient
from tests.paths import ROOT

POLL_SECONDS = 0.005

OWN_INTERPRETER = ("env",)
"""Before the command of a process that shall have an interpreter of its own, whose memory is no other's."""

COMMAND = "tests.forking"
"""Program whose standard output is a file of its own; see `main`."""

_AT_IMPORT = dict(os.environ)
_LOCK = threading.Lock()


@functools.cache
def _server() -> ForkServerClient:
    """The warmed process of this one. What a test has put into the environment is not there."""
    paths = [str(ROOT), *filter(None, [_AT_IMPORT.get("PYTHONPATH")])]
    # Modules of the tests are imported in what is forked.
    environment = _AT_IMPORT | {"PYTHONPATH": os.pathsep.join(paths)}
    with mock.patch.dict(os.environ, environment, clear=True):
        server = ForkServerClient("tests")
    atexit.register(server.close)
    server.is_ready(seconds=120.0)
    return server


class ForkedProcess:
    """A process that runs `program.main(arguments)`; it ends with this one at the latest.

    :param environment: variables that it has besides those that this process began with; by default those that have
        changed since.
    """

    def __init__(
        self, program: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        if environment is None:
            environment = os.environ
        changed = {
            name: value
            for name, value in environment.items()
            if _AT_IMPORT.get(name) != value and name not in ("PYTEST_CURRENT_TEST", "PYTHONPATH")
        }
        with _LOCK:
            self.pid = _server().start(program, arguments, log, changed)

    def poll(self) -> int | None:
        """Exit code, None as long as it runs."""
        with _LOCK:
            _server().poll()
            return _server().exit_code(self.pid)

    def wait(self, timeout: float = 60.0) -> int:
        """Exit code, once it has ended.

        :raises TimeoutExpired: when it has not by then.
        """
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended: until that is known, nobody else gets its id."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], timeout: float = 120.0
) -> CompletedProcess[str]:
    """Run a program to its end; what it has said on which of its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        output.touch()
        process = ForkedProcess(COMMAND, [str(output), program, *arguments], errors, environment)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return CompletedProcess([program, *arguments], code, output.read_text(), errors.read_text())


def main(arguments: list[str]) -> int:
    """In a forked process: OUTPUT PROGRAM ARGUMENT..., whose standard output is that file and whose input is empty."""
    output, program, *rest = arguments
    for standard, path, flags in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY | os.O_APPEND)):
        descriptor = os.open(path, flags)
        os.dup2(descriptor, standard)
        os.close(descriptor)
    module: Any = import_module(program)
    sys.argv = [str(module.__file__), *rest]
    code: int = module.main(rest)
    return code
