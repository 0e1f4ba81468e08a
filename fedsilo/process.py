"""What every fedsilo process does alike: end with its parent, and turn an error into a line and an exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import metadata

from fedsilo.errors import FedsiloError

log = logging.getLogger("fedsilo")

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def version() -> str:
    """Name and version, as every program's `--version` prints it."""
    return f"fedsilo {metadata.version('fedsilo')}"


def exit_with_parent() -> None:
    """End this process as soon as standard input is closed.

    The parent holds the other end of a pipe and never writes: when it dies, in whatever way, the pipe closes. That
    works on every system, where a signal on the parent's death is Linux alone.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(TERMINATED)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def run_until_done(body: Callable[[], None]) -> int:
    """Run a process's body; its exit code. Errors become one line each, an unforeseen one keeps its traceback."""
    try:
        body()
    except FedsiloError as error:
        for line in str(error).splitlines():
            log.error("%s: %s", error.reason, line)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    except Exception:
        log.exception("InternalError: this is a defect of fedsilo; please report it")
        return 1
    return 0
