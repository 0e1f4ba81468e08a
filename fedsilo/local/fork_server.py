"""The warmed process from which all processes of a run on this machine fork.

PyTorch takes seconds to import and some hundred MB of memory. Here it is imported once: aggregator, guards, trainers
and the local baseline are forked from this process, begin in milliseconds and share that memory. What a fork hands on
is therefore kept harmless: this process imports fedsilo's own modules and libraries and nothing else. It runs no code
of a job, reads no key, no manifest and no data, computes nothing, has one thread and never asks for a device, so that
each child has a random state and a CUDA context of its own.

    python -m fedsilo.local.fork_server LABEL PADDING

Requests and answers are lines of JSON on standard input and output; `fedsilo.local.child_processes` is the other
side. First comes an empty answer: ready. A request `{program, arguments, log, environment, modules}` imports the
modules and starts `program.main(arguments)` in a child, the answer is `{pid}`, or `{error}` where there is none. `{}`
asks who has ended since: process id -> exit code. Until then a child that has ended keeps its process id, so that a
signal to it never reaches an unrelated process.

A child leads a session and group of its own. What it has started there, such as a loader's server, is killed when the
child has ended; what has left its group becomes a child of this process, as a subreaper (prctl(2), Linux), and is
killed at the latest when none of the run's own processes is left.

Each child's standard input is a pipe whose other end this process holds. It closes with this process, which kills
everything below it and ends as soon as its own input is closed, so that no process outlives the run, however that dies
(`exit_with_parent`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.process import THREAD_VARIABLES, importing_for_good

if TYPE_CHECKING:
    from fedsilo.api.job import FederatedJobSpec

PRELOADED_MODULES: tuple[str, ...] = (
    "cryptography.hazmat.primitives.serialization",
    "encodings.idna",
    "numpy.ma",
    "numpy.random",
    "torch.utils._device",
    "fedsilo.engine.curves",
    "fedsilo.engine.scoring",
    "fedsilo.learning.models",
    "fedsilo.local.baseline",
    "fedsilo.silo.context",
    "fedsilo.silo.personal",
    "fedsilo.silo.runner",
    "fedsilo.transforms.evaluation.aggregator",
    "fedsilo.transforms.evaluation.trainer",
    "fedsilo_aggregator.http",
    "fedsilo_aggregator.metrics",
    "fedsilo_aggregator.rounds",
    "fedsilo_aggregator.startup",
    "fedsilo_aggregator.__main__",
    "fedsilo_agent.guard.__main__",
    "fedsilo_agent.trainer.loop",
    "fedsilo_agent.trainer.mailbox",
    "fedsilo_agent.trainer.__main__",
)
"""What the programs import, early or late; given by name, because these packages depend on this one."""

ACCOUNTING_MODULES = ("dp_accounting.pld",)
"""Library that computes epsilon; with SciPy it takes more than a second of each process that imports it by itself."""

PR_SET_CHILD_SUBREAPER = 36


def modules_of_job(spec: FederatedJobSpec) -> tuple[str, ...]:
    """What each guard and trainer of this job imports, and those of other jobs do not.

    Opacus is no part of it: only trainers whose network is not taken apart layer by layer import it.
    """
    private = spec.privacy.differential_privacy
    return ACCOUNTING_MODULES if private is not None and private.noised_by_trainer else ()


def main() -> None:
    """Answer requests until standard input is closed."""
    # Pools of threads that a library makes when it is imported would not survive a fork.
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints when it is imported is no answer
    _set_title(["python", "-m", "fedsilo.local.fork_server", sys.argv[1]])
    _import(PRELOADED_MODULES)
    _adopt_orphans()
    parents: dict[int, int] = {}
    print(json.dumps({}), file=answers)
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if request:
            try:
                pid, parents_end = _start(**request)
            except (OSError, ImportError) as error:  # the system permits no more processes, say
                print(json.dumps({"error": str(error)}), file=answers)
            else:
                parents[pid] = parents_end
                print(json.dumps({"pid": pid}), file=answers)
        else:
            ended = _reap_children(parents)
            for pid in ended:
                os.close(parents.pop(pid))
            print(json.dumps(ended), file=answers)
    _end_descendants()
    # Tidying the interpreter up takes longer than the system does to take everything back.
    os._exit(0)


def _import(names: Sequence[str]) -> None:
    """Import what children are to find imported."""
    # It is kept from the collector, which writes into what it looks at: a page that is written to is shared no longer.
    with importing_for_good():
        for name in names:
            import_module(name)
    if threads := _threads() - 1:
        raise SystemExit(
            f"{threads} more threads run in the process that is to be forked; leave out what starts them: a "
            "sitecustomize, a .pth file or another plug-in of this Python"
        )


def _reap_children(running: Collection[int]) -> dict[int, int]:
    """Exit codes of the children that have ended, as `subprocess` says them; what they have left behind is killed."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            if pid in running:
                _kill(pid)  # its group, for nobody else gets its id so soon
                ended[pid] = os.waitstatus_to_exitcode(status)
    if ended and len(ended) == len(running):
        _end_descendants()
    return ended


def _end_descendants() -> None:
    """Kill every process below this one: those that it has started, and those that they have started and left."""
    while killed := [pid for pid in _children() if _kill(pid)]:
        for pid in killed:
            os.waitpid(pid, 0)


def _kill(pid: int) -> bool:
    """Kill a process and the group that it leads; whether the system permits it."""
    for kill in (os.kill, os.killpg):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:
            return False
    return True


def _children() -> list[int]:
    """Every process whose parent this is, orphans of its own children included; only where the system lists them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def _adopt_orphans() -> None:
    """Become the parent of processes that those below this one leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(
    program: str, arguments: list[str], log: str, environment: dict[str, str], modules: list[str]
) -> tuple[int, int]:
    """Fork a child that runs the program; returns its process id, and our end of its standard input."""
    _import(modules)
    theirs, ours = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(theirs)
        os.close(ours)
        raise
    if pid == 0:
        code = 1
        try:
            _leave_parent(theirs, log)
            os.environ |= environment
            _set_title(["python", "-m", program.removesuffix(".__main__"), *arguments])
            code = _run(program, arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            # Tidying the interpreter up takes longer than the system does to take everything back.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(theirs)
    return pid, ours


def _leave_parent(stdin: int, log: str) -> None:
    """Keep nothing of the parent but its memory: a new session, three descriptors, fresh random state."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for standard, descriptor in enumerate((stdin, output, output)):
        os.dup2(descriptor, standard)
    for descriptor in [int(name) for name in os.listdir("/dev/fd")]:  # noqa: PTH208 (the listing has one, too)
        if descriptor > 2:
            _close(descriptor)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # Python's own generator does so by itself


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


def _run(program: str, arguments: list[str]) -> int:
    module: Any = import_module(program)
    # Readers of these find what `python -m` would have put there.
    sys.modules["__main__"] = module
    sys.argv = [str(module.__file__), *arguments]
    try:
        code: int = module.main(arguments)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]
    return code


def _threads() -> int:
    """Threads of this process, also those that Python does not know."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def _set_title(command_line: Sequence[str]) -> None:
    """Show this command line to `ps`, cut to the space that there is; only where the system says where it lies."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return
    start, end = int(fields[45]), int(fields[46])  # fields 48 and 49 of proc(5)
    if start:
        title = b"\0".join(os.fsencode(word) for word in command_line)
        ctypes.memmove(start, title[: end - start - 1].ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
