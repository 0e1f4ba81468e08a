"""A full volume is waited for, in few words; any other error is none of this."""

from __future__ import annotations

import asyncio
import errno
import logging
import time

import pytest

from fedsilo.files.full_disk import retry_while_disk_full, when_there_is_space


class Disk:
    """A disk that is full for so many tries, and time that passes only where somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = 0
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(asyncio, "sleep", self.sleep_async)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.now += seconds

    def write(self) -> str:
        if self.full > 0:
            self.full -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return "written"

    async def write_async(self) -> str:
        return self.write()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_an_hour_without_space_is_waited_out(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    for asynchronous in (False, True):
        disk.full = 3600
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            if asynchronous:
                assert await retry_while_disk_full(disk.write_async) == "written"
            else:
                assert when_there_is_space(disk.write) == "written"
        assert len(caplog.records) == 60, "said once a minute"
        assert "the disk is full" in caplog.text


def test_another_error_is_raised() -> None:
    def write() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        when_there_is_space(write)
