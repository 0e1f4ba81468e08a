"""Drops whose tensors or reply are a pipe, a socket, a directory, a device of zeros, or not there.

By: a hostile trainer, which writes into the drop.

Must: refused as no plain file; the guard waits for none of them.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def bind_socket(path: Path) -> None:
    """Bind a Unix socket at the path, whose last part must be short."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    """/dev/zero under another name, where one may make that."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        os.mkfifo(path)


KINDS: tuple[Callable[[Path], object], ...] = (os.mkfifo, bind_socket, Path.mkdir, device)


def attack(target: LiveGuard) -> None:
    for file in ("tensors", "reply.json"):
        for make in KINDS:
            task = target.name()
            path = target.aggregator.drop(task) / file
            path.unlink()
            make(path)
            target.expect_drop_refused(task, "not a plain file")
    task = target.name()
    (target.aggregator.drop(task) / "tensors").unlink()
    target.expect_drop_refused(task, "not a plain file")
