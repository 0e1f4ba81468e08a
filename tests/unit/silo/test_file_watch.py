"""Whoever waits for a file is woken when it is there, whether or not the kernel tells of it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from fedsilo.silo import file_watch
from fedsilo.silo.file_watch import ChangeWait, FileWatcher, InotifyWatcher
from fedsilo.silo.volume import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS


class SilentInotify(InotifyWatcher):
    """A file system that can be watched, and tells nothing."""

    def __init__(self) -> None:
        self.descriptor, self._written = os.pipe()
        self._watches = {}

    @override
    def watch(self, directory: Path) -> bool:
        known = directory in self._watches
        self._watches[directory] = 0
        return not known

    @override
    def read(self) -> bool:
        return False


@pytest.fixture(params=["told", "silent", "none"])
def changes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileWatcher]:
    kinds: dict[str, Callable[[], InotifyWatcher | None]] = {
        "told": file_watch.open_inotify,
        "silent": SilentInotify,
        "none": lambda: None,
    }
    monkeypatch.setattr(file_watch, "open_inotify", kinds[request.param])
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 3600.0)
    yield FileWatcher()


def publish(path: Path) -> None:
    temporary = path.with_name(".temporary")
    temporary.touch()
    temporary.rename(path)


def look(waiting: ChangeWait, path: Path) -> int:
    looks = 1
    while not path.exists():
        waiting.sleep()
        looks += 1
    return looks


def test_a_file_that_is_written_while_somebody_waits_is_found(changes: FileWatcher, tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / str(number)
        writer = threading.Timer(0.01, publish, [path])
        writer.start()
        look(changes.waiting(tmp_path), path)
        writer.join()


async def test_so_it_is_on_an_event_loop(changes: FileWatcher, tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / str(number)
        asyncio.get_running_loop().call_later(0.01, publish, path)
        waiting = changes.waiting(tmp_path)
        while not path.exists():
            await waiting.change()


def test_what_comes_between_a_look_and_the_wait_is_not_missed(changes: FileWatcher, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    publish(first)
    look(changes.waiting(tmp_path), first)
    waiting = changes.waiting(tmp_path)
    waiting.sleep()
    publish(second)
    waiting.sleep()
    assert look(waiting, second) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_directory_may_come_later_or_again(changes: FileWatcher, tmp_path: Path, again: bool) -> None:
    directory = tmp_path / "task"
    path = directory / "reply.json"

    def write() -> None:
        directory.mkdir()
        publish(path)

    waiting = changes.waiting(tmp_path, directory)
    if again:
        directory.mkdir()
        waiting.sleep()
        publish(directory / "failed.json")
        waiting.sleep()
        (directory / "failed.json").unlink()
        directory.rmdir()
    writer = threading.Timer(0.01, write)
    writer.start()
    look(waiting, path)
    writer.join()


def test_once_told_nobody_looks_without_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file_watch.open_inotify() is None:
        pytest.skip("this kernel tells nothing")
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 3600.0)
    changes, path = FileWatcher(), tmp_path / "1"
    waiting = changes.waiting(tmp_path)
    waiting.sleep()
    publish(tmp_path / "0")
    look(waiting, tmp_path / "0")
    waiting.sleep()
    assert changes.tells
    writer = threading.Timer(0.2, publish, [path])
    writer.start()
    # By pauses there would be a dozen; the file's making and its renaming may wake one by one.
    assert look(changes.waiting(tmp_path), path) <= 3
    writer.join()


def test_as_long_as_nothing_is_told_looks_are_as_frequent_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "open_inotify", SilentInotify)
    waiting = FileWatcher().waiting(tmp_path)
    waited = [waiting._seconds() for _ in range(20)]
    assert waited[0] == FIRST_PAUSE_SECONDS and waited[-1] == MAX_PAUSE_SECONDS


def test_a_writer_cannot_make_the_other_look_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BusyInotify(SilentInotify):
        @override
        def read(self) -> bool:
            return True

    monkeypatch.setattr(file_watch, "open_inotify", BusyInotify)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    changes = FileWatcher()
    assert [changes.rest() for _ in range(3)] == pytest.approx(
        [0, FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS]
    )


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    inotify = file_watch.open_inotify()
    if inotify is None:
        pytest.skip("this kernel tells nothing")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "task").symlink_to(tmp_path / "elsewhere")
    assert not inotify.watch(tmp_path / "task")
    publish(tmp_path / "elsewhere" / "reply.json")
    assert not inotify.read()
