"""One process holds a directory at a time, and the others know which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.errors import FileDamaged
from fedsilo.files.locking import DirectoryLock


def test_a_directory_is_held_once_and_names_its_holder(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as first, DirectoryLock(tmp_path) as second:
        assert first.acquire()
        first.write_holder("process 1 on alpha")
        assert not second.acquire()
        assert second.holder == "process 1 on alpha"


def test_a_lock_ends_with_its_block_and_the_next_holder_replaces_the_name(tmp_path: Path) -> None:
    for holder in ("a process with a long name", "short"):
        with DirectoryLock(tmp_path) as lock:
            assert lock.acquire()
            lock.write_holder(holder)
            assert lock.holder == holder
    with DirectoryLock(tmp_path) as lock:
        assert lock.holder == "short", "the file stays, and says who was last"


def test_a_damaged_name_of_the_holder_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as lock:
        (tmp_path / "lock").write_bytes(b"process \xff")
        assert lock.holder == "process \ufffd"


def test_before_the_first_holder_there_is_no_name(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as lock:
        assert lock.holder == ""


def test_a_directory_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "none")


@pytest.mark.parametrize("damage", [Path.mkdir, lambda path: path.symlink_to(path.with_name("elsewhere"))])
def test_what_is_no_lock_is_named_and_left_alone(damage: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("of somebody else")
    damage(tmp_path / "lock")
    with pytest.raises(FileDamaged, match="lock: is not a file; remove it"):
        DirectoryLock(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "of somebody else"
