"""Programs of fedsilo whose interpreter has imported everything already.

Starting Python and importing PyTorch costs a test more than the small federation that it looks at. `start` forks a
program from one warmed process for each process of pytest (`server.py`), and the fork server of a run from the run.
What a program then does is what it does anywhere: it is a process with its own command line, environment, directory,
output and signals, and a run's aggregator, guards and trainers are forked as for anybody.

What is about the start itself must begin cold, as for a person: code that Python runs when it starts, variables that
libraries read when they are loaded, what a process holds of its parent. `is_warmable` says which environments will do,
and one test of each kind of run says `cold`.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from fedsilo.process import THREAD_VARIABLES
from tests.paths import ROOT
from tests.warm.orphans import adopting_orphans

COMPONENTS = [str(ROOT), *(str(ROOT / name) for name in ("aggregator", "silo-agent", "operator"))]
SURROUNDINGS = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
"""The environment of the tests, before any of them changes it."""

READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_")
"""Beginnings of the names of variables that an interpreter or its libraries read once."""


def is_warmable(environment: Mapping[str, str]) -> bool:
    """Whether a program with this environment does nothing else for having been started warm."""
    if sys.platform != "linux":
        return False
    path = (Path(place) for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place)
    return all(map(_holds_modules_alone, path)) and _read_at_start(environment) == _read_at_start(
        SURROUNDINGS
    )


def _holds_modules_alone(place: Path) -> bool:
    """Whether Python runs nothing of this folder when it starts; one that depends on the directory is not looked at."""
    return place.is_absolute() and not any(place.glob("*customize*"))


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    # A job that was run in this process has set those of threads, to what the warmed process has.
    return dict.fromkeys(THREAD_VARIABLES, "1") | {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }


class _WarmProcess(subprocess.Popen[Any]):
    """A process that was forked from the warmed one, and is this one's child like any other."""

    def _execute_child(self, *given: Any) -> None:
        found = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        request = {
            "words": found["args"],
            "directory": os.fspath(found["cwd"] or Path.cwd()),
            "environment": dict(found["env"]),
            "newSession": found["start_new_session"],
        }
        standard = [found["p2cread"], found["c2pwrite"], found["errwrite"]]
        files = [number if file == -1 else file for number, file in enumerate(standard)]
        self.pid = _server().fork(request, files)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(found[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )


def start(
    program: str, arguments: Sequence[str], *, env: Mapping[str, str], cold: bool = False, **options: Any
) -> subprocess.Popen[Any]:
    """Begin `python -m program arguments`, warm where the environment permits it; options as those of `Popen`.

    :param cold: whether the program begins with an interpreter of its own in any case.
    """
    return (subprocess.Popen if cold or not is_warmable(env) else _WarmProcess)(
        [sys.executable, "-m", program, *arguments], env=env, **options
    )


def run(
    program: str, arguments: Sequence[str], *, env: Mapping[str, str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `python -m program arguments` to its end; its output as text."""
    with start(
        program, arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def subprocess_of_a_run() -> Any:
    """What `fedsilo.local.child_processes` has for `subprocess` in a test that runs a job in its own process."""
    return SimpleNamespace(**vars(subprocess) | {"Popen": _WarmProcess})


class _Server:
    """The warmed process, seen from here; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = dict.fromkeys(THREAD_VARIABLES, "1")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.warm.server", str(theirs.fileno()), " " * 8192],
                cwd=ROOT,
                env=SURROUNDINGS | variables | {"PYTHONPATH": os.pathsep.join(COMPONENTS)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """A child of this process that runs a program with these standard files; its id."""
        with self._lock, adopting_orphans():
            socket.send_fds(self._connection, [json.dumps(request).encode()], files)
            answer = self._connection.recv(64)
        if not answer:
            raise RuntimeError(f"the warmed process has ended: {self._process.wait()}")
        return int(answer)

    def _close(self) -> None:
        self._connection.close()
        self._process.wait()


_running_server: dict[Literal["server"], _Server] = {}
_starting = threading.Lock()


def _server() -> _Server:
    with _starting:
        if "server" not in _running_server:
            _running_server["server"] = _Server()
        return _running_server["server"]
