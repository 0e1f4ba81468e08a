"""A file is replaced whole or stays as it was, and nobody can make the content go elsewhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from blake3 import blake3

from fedsilo.errors import FileDamaged
from fedsilo.files import early_writing
from fedsilo.files.durable import AppendedFile, append_durably, require_content, temporary_file, write_durably
from fedsilo.files.json_files import read_json, write_json


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_json(path) is None
    for document in ({"round": 1}, {"round": 2}):
        write_json(path, document)
        assert read_json(path) == document
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_full_disk_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    write_durably(path, b"old")

    def fail_on_full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_on_full_disk)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_replaced_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "task.json"
    elsewhere.write_bytes(b"precious")
    path.symlink_to(elsewhere)
    write_durably(path, b"task")
    assert (path.read_bytes(), elsewhere.read_bytes()) == (b"task", b"precious")
    assert not path.is_symlink()


def test_a_temporary_file_has_the_permissions_asked_for_and_goes(tmp_path: Path) -> None:
    with temporary_file(tmp_path, 0o600) as (_, temporary):
        assert temporary.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == []


def test_lines_are_appended(tmp_path: Path) -> None:
    for line in ("one", "zwölf"):
        append_durably(tmp_path / "log", line)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "one\nzwölf\n"


def test_a_file_is_what_its_digest_says_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    digest = hashlib.sha256(b"tensors").hexdigest()
    with pytest.raises(FileDamaged, match="blob: is missing; fetch it"):
        require_content(path, digest, "fetch it")
    path.write_bytes(b"tensors")
    require_content(path, digest)
    path.write_bytes(b"tensorr")
    with pytest.raises(
        FileDamaged, match=rf"blob: its SHA-256 is [0-9a-f]{{12}}, not {digest[:12]}; restore"
    ):
        require_content(path, digest)


def test_the_digest_itself_says_by_which_hash_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"tensors")
    digest = f"blake3-{blake3(b'tensors').hexdigest()}"
    require_content(path, digest)
    for other in (
        digest.removeprefix("blake3-"),
        f"blake3-{hashlib.sha256(b'tensors').hexdigest()}",
        "blake3-",
        "",
    ):
        with pytest.raises(FileDamaged, match=r"blob: its (SHA-256|BLAKE3) is [0-9a-f]{12}, not "):
            require_content(path, other)


def test_a_file_is_brought_to_the_disk_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []

    def note(_descriptor: int, start: int, size: int, _flags: int) -> int:
        begun.append((start, size))
        return 0

    monkeypatch.setattr(early_writing, "EARLY_BYTES", 10)
    monkeypatch.setattr(early_writing, "_sync_file_range", lambda: note)
    path = tmp_path / "file"
    for _ in range(2):
        with AppendedFile(path, synced=True) as file:
            for _ in range(4):
                file.append(b"12345678")
    assert begun == [(0, 16), (16, 16), (32, 16), (48, 16)]
    assert path.stat().st_size == 64


def test_the_system_can_be_asked_to_begin_early(tmp_path: Path) -> None:
    begin = early_writing._sync_file_range()
    assert begin is not None, "Linux has it"
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(100))
        assert begin(file.fileno(), 0, 100, early_writing.SYNC_FILE_RANGE_WRITE) == 0
