"""Datasets that institutions' own code might give, with every fault that it can have; run in trainers."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

RawImages = tuple[np.ndarray, np.ndarray]


def digits() -> RawImages:
    """All of the digits."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32).reshape(-1, 8, 8), labels


def crash() -> RawImages:
    """End the whole process, as a fault in native code does."""
    os._exit(9)


def quit() -> RawImages:
    """End the process as a program does that has done everything."""
    sys.exit(0)


def leave(label: str) -> RawImages:
    """Start another process, then end this one as if everything had been done."""
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)", label]
    subprocess.Popen(sleep, start_new_session=True)
    os._exit(0)


def hang() -> RawImages:
    """A loader that never returns."""
    time.sleep(3600)
    raise AssertionError


def look_around(port: int, paths: list[str]) -> RawImages:
    """Try to leave and to look where it should not, and say in an error what came of it."""
    found: dict[str, object] = {path: sorted(entry.name for entry in Path(path).iterdir()) for path in paths}
    for path in paths:
        try:
            (Path(path) / "planted").touch()
            found["planted"] = path
        except OSError:
            pass
    for path in paths:
        # 0 would say that the cover came off.
        found[f"umount {path}"] = ctypes.CDLL(None).umount2(path.encode(), 0)
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
        found["network"] = "reached"
    except OSError:
        found["network"] = "none"
    raise ValueError(json.dumps(found))
