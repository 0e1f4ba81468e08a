"""Programs that the fork server's tests start, and what they say of themselves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def main(arguments: list[str]) -> int:
    """Do what the first argument says, with the others."""
    behaviour, *values = [argument for argument in arguments if argument != "--exit-with-parent"]
    match behaviour:
        case "exit":
            return int(values[0])
        case "raise":
            raise ValueError(values[0])
        case "quit":
            sys.exit(values[0])
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "stay":
            Path(values[0]).touch()
            os.read(0, 1)
            Path(values[0]).unlink()
        case "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(values[0]).touch()
            time.sleep(600)
        case "begin":
            _begin_others(Path(values[0]))
            if values[1:] == ["stay"]:
                os.read(0, 1)
        case "describe":
            Path(values[0]).write_text(json.dumps(_description()))
    return 0


def _begin_others(pids: Path) -> None:
    """Start processes that nobody ends: in this group, in a session of their own, and orphans in one."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = [subprocess.Popen(sleep, start_new_session=session).pid for session in (False, True)]
    orphan = f"import subprocess; print(subprocess.Popen({sleep}, start_new_session=True, stdout=-3).pid)"
    found.append(int(subprocess.check_output([sys.executable, "-c", orphan])))
    pids.with_suffix(".new").write_text(json.dumps(found))
    pids.with_suffix(".new").rename(pids)


def _description() -> dict[str, object]:
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            descriptors[name] = str(Path("/proc/self/fd", name).readlink())
        except FileNotFoundError:  # the listing's own
            continue
    return {
        "descriptors": descriptors,
        "session": os.getsid(0) == os.getpid(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGCHLD)],
        "title": Path("/proc/self/cmdline").read_text().rstrip("\0").split("\0"),
        "arguments": sys.argv[1:],
        "environment": [dict(os.environ), Path("/proc/self/environ").read_text()],
        "main": sys.modules["__main__"].__name__,
        "random": [random.random(), float(np.random.random())],
        "torch": "torch" in sys.modules,
        "colorsys": "colorsys" in sys.modules,
        "cuda": "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized(),
    }
