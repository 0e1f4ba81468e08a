"""A program that says what it is, as `test_warm.py` reads it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> int:
    if sys.argv[1] == "wait":
        print("waiting", flush=True)
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            return 1
    document = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "leads a session": os.getsid(0) == os.getpid(),
        "line": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        "directory": str(Path.cwd()),
        "word": os.environ["WORD"],
        "environment": sorted(os.environ),
        "descriptors": len([name for name in os.listdir("/proc/self/fd") if int(name) < 3]),  # noqa: PTH208
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "path": sys.path,
        "input": sys.stdin.read(),
        "buffered": [stream.line_buffering for stream in (sys.stdout, sys.stderr)],
        "encoding": [stream.encoding for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "errors": [stream.errors for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "handlers": [str(signal_of(number)) for number in (2, 13, 15)],
    }
    print(json.dumps(document))
    print("two", file=sys.stderr)
    return int(sys.argv[1])


def signal_of(number: int) -> object:
    import signal

    found = signal.getsignal(number)
    return found.__name__ if callable(found) else found


if __name__ == "__main__":
    sys.exit(main())
