"""Standard input, output and error as they can fail: closed, without a reader, of an encoding with few characters.

What a command does is more than what it says, so that a run goes on where nobody listens.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from typing import TextIO

from typing_extensions import Buffer, override

LOST_READER_ERRORS = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.ENXIO, errno.EBADF})
"""What writing to a pipe, socket or terminal fails with once nobody is at its other end."""

_STRICT_HANDLERS = ("strict", "surrogateescape")


class OutputFile(io.FileIO):
    """A file that discards what nobody can read any longer; what is stored, as on a full disk, fails as ever."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._stored = stat.S_ISREG(os.fstat(descriptor).st_mode)

    @override
    def write(self, data: Buffer, /) -> int:
        while True:
            try:
                written: int | None = super().write(data)
            except OSError as error:
                if self._stored or error.errno not in LOST_READER_ERRORS:
                    raise
                return memoryview(data).nbytes
            if written is not None:
                return written
            # Somebody at the other end has made it non-blocking, and reads slowly.
            select.select([], [self], [])


def prepare_standard_streams() -> None:
    """Make each of the three streams one that a command may use without looking at it; again it changes nothing.

    A closed one becomes the null device, before a file or socket gets its number. Output replaces the characters that
    its encoding lacks, and outlives its reader. Streams that are no longer those of the interpreter stay as they are.
    """
    _occupy_closed_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _output_stream(stream, 1 if name == "stdout" else 2))


def has_lost_reader(stream: TextIO) -> bool:
    """Whether the other end of a pipe or socket is closed, so that what follows something may end."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # text in memory
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLERR)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _occupy_closed_descriptors() -> None:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _output_stream(stream: TextIO | None, descriptor: int) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return io.TextIOWrapper(
            io.BufferedWriter(OutputFile(descriptor)), encoding="utf-8", errors="replace", line_buffering=True
        )
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(OutputFile(stream.fileno())),
        encoding=stream.encoding,
        errors="replace" if stream.errors in _STRICT_HANDLERS else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
