"""What all fedsilo processes share: how they read their arguments, when they end, and how they report their end."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from typing_extensions import override

from fedsilo.errors import FedsiloError, ManifestInvalid, StorageFailed

log = logging.getLogger("fedsilo")

INTERRUPTED_EXIT_CODE = 128 + signal.SIGINT
TERMINATED_EXIT_CODE = 128 + signal.SIGTERM

TERMINATION_LOG = Path("/dev/termination-log")
"""The file in which a container leaves its termination message (Kubernetes, `terminationMessagePath`)."""

TERMINATION_LOG_VARIABLE = "FEDSILO_TERMINATION_LOG"
"""Variable that names another file in its place, for a program that runs in no container."""

MAX_TERMINATION_BYTES = 4096
"""Bytes of it that Kubernetes reads."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables in which numerical libraries look for their number of threads when they are loaded."""

TEMPORARY_BYTES = "FEDSILO_TEMPORARY_BYTES"
"""Variable with the bytes of temporary files that a pod may write; a program without it may fill the disk."""


class Arguments(argparse.ArgumentParser):
    """The command line of a process; a wrong one is an error like any other, so that it is reported alike."""

    @override
    def error(self, message: str) -> NoReturn:
        """Show the usage and raise.

        :raises ManifestInvalid: always.
        """
        self.print_usage(sys.stderr)
        raise ManifestInvalid(f"{self.prog}: {message}")


def version() -> str:
    """Name and version, as every program's `--version` prints it."""
    from importlib import metadata

    return f"fedsilo {metadata.version('fedsilo')}"


def exit_without_collecting() -> None:
    """Leave the garbage of this process to the system when it ends: looking for it takes longer than all else then.

    What has to be closed is closed where it was opened, and nothing waits for the collector.
    """
    atexit.unregister(gc.freeze)  # once, however often this is called
    atexit.register(gc.freeze)


@contextlib.contextmanager
def importing_for_good() -> Iterator[None]:
    """Import what this process keeps without the cyclic collector, which would look at it again and again.

    That is a tenth of the time of importing PyTorch.

    Where anything was imported, later passes leave out whatever is there by then: the first one alone would look at
    hundreds of thousands of objects of PyTorch's.
    """
    enabled, imported = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > imported:
            gc.freeze()
        if enabled:
            gc.enable()


def exit_with_parent() -> None:
    """End this process as soon as standard input is closed.

    The parent holds the other end of a pipe and never writes: when it dies, in whatever way, the pipe closes. That
    works on every system, where a signal on the parent's death exists on Linux only.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(TERMINATED_EXIT_CODE)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def exit_on_sigterm() -> None:
    """End this process at once on SIGTERM, with 143.

    The first process of a container gets no signal that it has no handler for. Nothing needs to be put in order:
    every file survives a crash.
    """
    end = os._exit  # which has another meaning while a job's own training runs
    signal.signal(signal.SIGTERM, lambda *_: end(TERMINATED_EXIT_CODE))


async def run_until_signalled(endless: Coroutine[Any, Any, None]) -> None:
    """Run something without end until SIGTERM or SIGINT; it is cancelled then, and has ended on return."""
    import asyncio

    work = asyncio.ensure_future(endless)
    signalled = False

    def stop() -> None:
        nonlocal signalled
        signalled = True
        work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not signalled:
            raise


EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


def run_until_done(
    body: Callable[[], None],
    termination_log: Path | None = None,
    facts: Mapping[str, Any] = EMPTY_MAPPING,
) -> int:
    """Run a process's body; its exit code. Errors become one line each, an unforeseen one keeps its traceback.

    :param termination_log: gets reason and message of an error as JSON, if there is such a file; by default the one
        that the environment names, else the container's.
    :param facts: what else the process says there, as it is at its end.
    """
    if termination_log is None:
        termination_log = Path(os.environ.get(TERMINATION_LOG_VARIABLE) or TERMINATION_LOG)
    exit_without_collecting()
    try:
        body()
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    except Exception as error:
        known = error if isinstance(error, FedsiloError) else StorageFailed.of(error)
        if known is not None:
            for line in str(known).splitlines():
                log.error("%s: %s", known.reason, line)
            leave(termination_message(known.reason, str(known), facts), termination_log)
            return known.exit_code
        log.exception("InternalError: this is a defect of fedsilo; please report it")
        text = f"{type(error).__name__}: {error}"
        leave(termination_message(FedsiloError.reason, text, facts), termination_log)
        return FedsiloError.exit_code
    except BaseException as end:
        from asyncio import CancelledError  # not above: most programs need it, and no command does

        if not isinstance(end, CancelledError):
            raise
        return TERMINATED_EXIT_CODE
    return 0


def leave(message: bytes, path: Path = TERMINATION_LOG) -> None:
    """Put a message where the kubelet reads it once the container has ended, in whatever way."""
    # Only where the file exists: outside of a container nobody reads it.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY)
        with os.fdopen(descriptor, "wb") as file:
            # Cut afterwards: a process that is killed in between has left the old message or the new one.
            file.write(message)
            file.flush()
            file.truncate()


def termination_message(reason: str, message: str, facts: Mapping[str, Any] = EMPTY_MAPPING) -> bytes:
    """Reason, message and facts as a JSON object; a message that is too long is cut."""
    kept = message
    while len(document := _as_json({"reason": reason, "message": kept, **facts})) > MAX_TERMINATION_BYTES:
        # A character takes at most six bytes.
        kept = kept[
            : min(MAX_TERMINATION_BYTES, len(kept) - 1 - (len(document) - MAX_TERMINATION_BYTES) // 6)
        ]
    return document


def _as_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")
