"""The warmed process of the tests: it imports what the programs of fedsilo import, and forks them.

    python -P -m tests.warm.server DESCRIPTOR PADDING

Each request is a message on the socket DESCRIPTOR, a JSON object {words, directory, environment, newSession} with the
three standard files; the answer is the process id. The new process has lost its parent by then, and is a child of who
asks.
Like the fork server of a run, this process runs no program's code, and has one thread.
"""

from __future__ import annotations

import atexit
import importlib
import inspect
import io
import json
import logging
import os
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy

from fedsilo import logs
from fedsilo.local import child_processes, fork_server
from fedsilo.process import importing_for_good
from tests.warm import COMPONENTS

COMMANDS = ("check", "evaluate", "export", "methods", "run", "silo", "sweep", "validate", "verify")
MODULES = (
    *fork_server.PRELOADED_MODULES,
    "fedsilo.cli.main",
    *(f"fedsilo.cli.{name}" for name in COMMANDS),
    "fedsilo.local.in_process",
    "fedsilo.local.run",
    "fedsilo.simulation.simulate",
    "rich.console",
    "rich.live",
    "rich.table",
    # What some jobs' processes import when they come to it, each of them anew.
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "opacus",
    "PIL.Image",
    "sklearn.cluster",
)
PATH = tuple(sys.path)
LINKED_PATHS = tuple(
    line
    for folder in site.getsitepackages()
    for file in sorted(Path(folder).glob("*.pth"))
    for line in file.read_text().splitlines()
    if Path(line).is_absolute()
)
"""Folders that an installation links to, which Python appends where they are not on the path already."""

LARGEST_REQUEST_BYTES = 1 << 20
"""Bytes of a request, at most."""


def main() -> None:
    """Answer requests until the socket is closed."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    with importing_for_good():
        for name in MODULES:
            import_module(name)
    if fork_server._threads() > 1:
        raise SystemExit("what is imported here starts threads, which a fork does not have")
    while True:
        message, files, *_ = socket.recv_fds(connection, LARGEST_REQUEST_BYTES, 3)
        if not message:
            # Tidying the interpreter up takes longer than the system does to take everything back.
            os._exit(0)
        connection.send(str(_fork_orphan(lambda: _become(files=files, **json.loads(message)))).encode())  # noqa: B023
        for file in files:
            os.close(file)


def _fork_orphan(become: Callable[[], NoReturn]) -> int:
    """Fork a process whose parent ends at once; its id."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(reading)
        between = os.getpid()
        pid = os.fork()
        if pid == 0:
            while os.getppid() == between:
                time.sleep(0.001)
            _never_returning(become)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        pid = int(told.read())
    os.waitpid(between, 0)
    return pid


def _never_returning(become: Callable[[], NoReturn]) -> NoReturn:
    try:
        become()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _become(
    words: Sequence[str],
    files: Sequence[int],
    directory: str | None,
    environment: Mapping[str, str],
    newSession: bool,  # noqa: N803
) -> NoReturn:
    """Be the process that `words`, a command line of Python with `-m`, would have started."""
    if newSession:
        os.setsid()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if directory is not None:
        os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    given = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = dict.fromkeys(
        (*given, *(place for place in PATH if place not in COMPONENTS), *LINKED_PATHS)
    )
    importlib.invalidate_caches()
    tempfile.tempdir = None
    numpy.random.seed()  # Python's own generator does so by itself
    _open_standard_files()
    _forget_logging()
    _forget_signals()
    fork_server._set_title(words)
    vars(child_processes)["subprocess"] = SimpleNamespace(**vars(subprocess) | {"Popen": _ForkedServer})
    program, *arguments = words[words.index("-m") + 1 :]
    _run(program, arguments)


def _forget_logging() -> None:
    """Leave no handler or level of the process that this one was forked from, which may be a run."""
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    logs._process.clear()


def _forget_signals() -> None:
    """Leave no handler of the process that this one was forked from, which may run an event loop."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_standard_files() -> None:
    """Standard input and output as Python opens them for a new process."""
    for name, mode in (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")):
        ours: io.TextIOWrapper = getattr(sys, name)
        file = ours.fileno()
        unbuffered = 0 if ours.write_through and mode == "wb" else -1
        opened = io.TextIOWrapper(
            open(file, mode, unbuffered, closefd=False),  # noqa: SIM115
            ours.encoding,
            ours.errors,
            line_buffering=ours.line_buffering or os.isatty(file),
            write_through=ours.write_through,
        )
        setattr(sys, name, opened)


def _run(program: str, arguments: Sequence[str]) -> NoReturn:
    module = import_module(program)
    if hasattr(module, "__path__"):
        module = import_module(f"{program}.__main__")
    sys.modules["__main__"] = module
    sys.argv = [str(module.__file__), *arguments]
    try:
        code = module.main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


class _ForkedServer(subprocess.Popen[bytes]):
    """The fork server of a run, itself forked from the run, which has imported what it would import."""

    def _execute_child(self, *given: Any) -> None:
        found = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            files = [found[name] for name in ("p2cread", "c2pwrite", "errwrite")]
            _never_returning(
                lambda: _become(found["args"], files, None, found["env"], found["start_new_session"])
            )
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(found[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )


if __name__ == "__main__":
    main()
