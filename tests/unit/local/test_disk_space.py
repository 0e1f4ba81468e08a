"""A full disk is said once and waited for; any other failure to write is passed on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.local import disk_space
from fedsilo.local.disk_space import DiskSpaceCheck


class RunStop(Exception):
    """The run is to end."""


def failing(times: int, code: int = errno.ENOSPC) -> Callable[[], str]:
    """Something that writes, and fails so often."""
    left = iter(range(times))

    def write() -> str:
        if next(left, None) is not None:
            raise OSError(code, "not now")
        return "written"

    return write


@pytest.fixture(autouse=True)
def recorded_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def test_a_full_disk_is_said_once_and_waited_for(recorded_sleeps: list[float]) -> None:
    said: list[str] = []
    assert DiskSpaceCheck(Path("/run"), said.append).wait(failing(3)) == "written"
    assert said == [
        "/run: the disk is full; the run goes on when there is space",
        "/run: there is space again; the run goes on",
    ]
    assert recorded_sleeps == [disk_space.PAUSE_SECONDS] * 3


def test_where_there_is_space_nothing_is_said(recorded_sleeps: list[float]) -> None:
    said: list[str] = []
    assert DiskSpaceCheck(Path("/run"), said.append).wait(failing(0)) == "written"
    assert (said, recorded_sleeps) == ([], [])


def test_a_run_that_waits_can_be_stopped() -> None:
    def check() -> None:
        raise RunStop

    with pytest.raises(RunStop):
        DiskSpaceCheck(Path("/run"), lambda _: None, check).wait(failing(1))


def test_what_is_no_full_disk_is_passed_on() -> None:
    space = DiskSpaceCheck(Path("/run"), lambda _: None)
    with pytest.raises(PermissionError):
        space.wait(failing(1, errno.EACCES))
    assert not space.is_full
