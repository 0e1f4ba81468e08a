"""A power cut leaves what was synced, and of the rest any part."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedsilo.files import durable
from tests.faults.page_cache import PageCache, mixture

CUTS = 60
"""Power cuts of which each possible outcome is one of few: all of them are seen, for these seeds."""


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    return path


@pytest.fixture
def cache(volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageCache]:
    cache = PageCache(volume, tmp_path / "record")
    monkeypatch.setattr(durable, "intercept", cache.take)
    yield cache


def outcomes(tmp_path: Path, prepare: Callable[[Path], None], change: Callable[[Path], None]) -> set[object]:
    """What cuts leave after a change of a volume that was on the disk: names and contents."""
    found: set[object] = set()
    for seed in range(CUTS):
        volume, record = tmp_path / "volume", tmp_path / "record"
        volume.mkdir()
        prepare(volume)
        cache = PageCache(volume, record)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable, "intercept", cache.take)
            change(volume)
        cache.cut(random.Random(seed))
        found.add(tuple((path.name, path.read_bytes()) for path in sorted(volume.iterdir())))
        shutil.rmtree(volume)
        shutil.rmtree(record)
    return found


def test_what_is_not_synced_is_lost(volume: Path, cache: PageCache) -> None:
    (volume / "file").write_bytes(b"content")
    (volume / "directory").mkdir()
    cache.cut(random.Random(0), certain=True)
    assert list(volume.iterdir()) == []


def test_a_durable_write_stays(volume: Path, cache: PageCache) -> None:
    durable.make_directory(volume / "a" / "b")
    durable.write_durably(volume / "a" / "b" / "file", b"content")
    (volume / "a").chmod(0o700)
    durable.sync_directory(volume)
    for seed in range(CUTS):
        cache.cut(random.Random(seed), certain=seed % 2 == 0)
        assert (volume / "a" / "b" / "file").read_bytes() == b"content"
        assert (volume / "a").stat().st_mode & 0o777 == 0o700


def test_a_rename_that_is_not_synced_is_done_or_not(tmp_path: Path) -> None:
    def prepare(volume: Path) -> None:
        (volume / "file").write_bytes(b"old")

    def rename(volume: Path) -> None:
        with durable.temporary_file(volume) as (file, temporary):
            file.write(b"new")
            durable.sync(file, temporary)
            durable.rename(temporary, volume / "file")

    assert outcomes(tmp_path, prepare, rename) == {(("file", b"old"),), (("file", b"new"),)}


def test_a_rename_without_a_sync_of_the_content_may_leave_an_empty_file(tmp_path: Path) -> None:
    def prepare(volume: Path) -> None:
        (volume / "file").write_bytes(b"old")

    def rename(volume: Path) -> None:
        (volume / "part").write_bytes(b"new")
        durable.rename(volume / "part", volume / "file")
        durable.sync_directory(volume)

    found = outcomes(tmp_path, prepare, rename)
    assert {(("file", b""),), (("file", b"\0\0\0"),), (("file", b"new"),)} <= found
    assert (("file", b"old"),) not in found


def test_a_removed_file_may_be_there_again(tmp_path: Path) -> None:
    def prepare(volume: Path) -> None:
        (volume / "file").write_bytes(b"content")

    assert outcomes(tmp_path, prepare, lambda volume: durable.unlink(volume / "file")) == {
        (),
        (("file", b"content"),),
    }


def test_an_appended_line_is_torn_behind_the_synced_ones(tmp_path: Path) -> None:
    def append(volume: Path) -> None:
        durable.append_durably(volume / "log", "one")
        with durable.AppendedFile(volume / "log", synced=True) as log:
            log.append(b"second\n")

    found = outcomes(tmp_path, lambda _: None, append)
    contents = {dict(outcome)["log"] for outcome in found}  # type: ignore[call-overload]
    assert all(content.startswith(b"one\n") for content in contents)
    assert {b"one\n", b"one\nsecond\n", b"one\n" + bytes(7)} <= contents
    assert any(b"s" in content and not content.endswith(b"\n") for content in contents)


def test_a_directory_in_the_place_of_a_removed_one_is_another(volume: Path, cache: PageCache) -> None:
    durable.make_directory(volume / "first")
    durable.write_durably(volume / "first" / "file", b"content")
    durable.remove_tree(volume / "first")
    # Many file systems give it the inode of the first.
    durable.make_directory(volume / "second")
    cache.cut(random.Random(0), certain=True)
    assert [path.name for path in volume.iterdir()] == ["second"]
    assert list((volume / "second").iterdir()) == []


def test_a_removed_directory_may_be_there_again_with_its_files(volume: Path, cache: PageCache) -> None:
    durable.make_directory(volume / "first")
    durable.write_durably(volume / "first" / "file", b"content")
    durable.remove_tree(volume / "first")
    cache.cut(random.Random(0), certain=True)
    assert (volume / "first" / "file").read_bytes() == b"content"


def test_several_processes_share_the_record(volume: Path, cache: PageCache, tmp_path: Path) -> None:
    other = PageCache(volume, tmp_path / "record")
    durable.write_durably(volume / "file", b"content")
    other.cut(random.Random(0), certain=True)
    assert (volume / "file").read_bytes() == b"content"


def test_a_step_that_fails_puts_nothing_on_the_disk(volume: Path, cache: PageCache) -> None:
    def fail() -> None:
        raise OSError("input/output error")

    (volume / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="input/output"):
        cache.take(durable.DiskStep("sync-directory", volume), fail)
    cache.cut(random.Random(0), certain=True)
    assert list(volume.iterdir()) == []


def test_sectors_are_old_or_new_or_zeros() -> None:
    before, after = b"a" * 2048, b"b" * 2048
    found = {mixture(random.Random(seed), before, after) for seed in range(CUTS)}
    assert {content[512:1024] for content in found if len(content) == 2048} == {
        b"a" * 512,
        b"b" * 512,
        bytes(512),
    }
