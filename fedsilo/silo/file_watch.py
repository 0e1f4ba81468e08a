"""Waiting for files that the other role writes into the shared directory.

Guard and trainer see the same directories of one node, so that the kernel can tell the one what the other has done
(inotify(7), Linux). Some file systems tell nothing: those of the network, of other sandboxes' kernels. So whoever waits
looks now and then all the same, often until the kernel has told anything, and seldom from then on; and what woke it is
never trusted: the files are looked at, as if nothing had.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import struct
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from fedsilo.silo.volume import FIRST_PAUSE_SECONDS, pauses

IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x80, 0x100, 0x200
IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW = 0x8000, 0x01000000, 0x02000000
"""Values of inotify(7), the same on every architecture of Linux."""

WATCHED_EVENTS = IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW
"""A file is written under another name and then renamed, so that it need not be watched itself."""

LOOK_SECONDS = 1.0
"""Time between two looks where the kernel tells of changes."""

EVENT = struct.Struct("iIII")
"""An event of inotify(7): watch, mask, cookie, and the length of the name that follows."""

MAX_EVENTS_BYTES = 1 << 16


def open_inotify() -> InotifyWatcher | None:
    """Open the kernel's notification; None where there is none, or too many processes of this user have one."""
    libc = ctypes.CDLL(None, use_errno=True)
    init = getattr(libc, "inotify_init1", None)
    descriptor = -1 if init is None else int(init(os.O_NONBLOCK | os.O_CLOEXEC))
    return None if descriptor < 0 else InotifyWatcher(libc, descriptor)


class InotifyWatcher:
    """What the kernel tells of some directories.

    :ivar descriptor: readable when it tells something.
    """

    def __init__(self, libc: ctypes.CDLL, descriptor: int) -> None:
        self.descriptor = descriptor
        self._libc = libc
        self._watches: dict[Path, int] = {}
        weakref.finalize(self, os.close, descriptor)

    def watch(self, directory: Path) -> bool:
        """Watch a directory if it is there; whether it was not watched before."""
        if directory in self._watches:
            return False
        watch = int(self._libc.inotify_add_watch(self.descriptor, os.fsencode(directory), WATCHED_EVENTS))
        if watch < 0:
            return False
        self._watches[directory] = watch
        return True

    def read(self) -> bool:
        """Take all that was told; whether there was anything."""
        told = False
        while content := self._content():
            told, position = True, 0
            while position < len(content):
                watch, mask, _, length = EVENT.unpack_from(content, position)
                position += EVENT.size + length
                if mask & IN_IGNORED:  # the directory is gone; another one may get its name
                    self._watches = {path: other for path, other in self._watches.items() if other != watch}
        return told

    def _content(self) -> bytes:
        try:
            return os.read(self.descriptor, MAX_EVENTS_BYTES)
        except BlockingIOError:
            return b""


class FileWatcher:
    """Changes of directories, for one process that waits for one thing at a time."""

    def __init__(self) -> None:
        self._inotify = open_inotify()
        self._tells = False
        self._woken = 0.0

    def waiting(self, *directories: Path) -> ChangeWait:
        """A wait for something in these directories, some of which may not be there yet."""
        return ChangeWait(self, directories)

    @property
    def descriptor(self) -> int | None:
        """Readable when something has changed; None where nobody tells."""
        return None if self._inotify is None else self._inotify.descriptor

    @property
    def tells(self) -> bool:
        """Whether the kernel has ever told of a change."""
        return self._tells

    def watch(self, directories: Sequence[Path]) -> bool:
        """Whether one of the directories is watched only from now on: what came before was not told."""
        inotify = self._inotify
        return inotify is not None and any(inotify.watch(directory) for directory in directories)

    def rest(self) -> float:
        """Take what was told; seconds to rest before the next look.

        Whoever writes cannot make the other look more often than it would without being told.
        """
        if self._inotify is None or not self._inotify.read():
            return 0.0
        self._tells = True
        now = time.monotonic()
        rest = max(0.0, self._woken + FIRST_PAUSE_SECONDS - now)
        self._woken = now + rest
        return rest


class ChangeWait:
    """A wait for something in some directories; look for it, and wait for a change, until it is there."""

    def __init__(self, changes: FileWatcher, directories: Sequence[Path]) -> None:
        self._changes = changes
        self._directories = directories
        self._pauses = pauses()

    def sleep(self) -> None:
        """Return when it is time to look again, in a thread of its own."""
        if self._changes.watch(self._directories):
            return
        descriptor, seconds = self._changes.descriptor, self._seconds()
        if descriptor is None:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(1000 * seconds)
        if rest := self._changes.rest():
            time.sleep(rest)

    async def change(self) -> None:
        """Return when it is time to look again, on an event loop."""
        if self._changes.watch(self._directories):
            return
        descriptor, seconds = self._changes.descriptor, self._seconds()
        if descriptor is None:
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        loop.add_reader(descriptor, told.set)
        try:
            async with asyncio.timeout(seconds):
                await told.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)
        if rest := self._changes.rest():
            await asyncio.sleep(rest)

    def _seconds(self) -> float:
        return LOOK_SECONDS if self._changes.tells else next(self._pauses)
