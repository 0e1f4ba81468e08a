"""A file is replaced whole or stays as it was, and nobody can make the content go elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from fedsilo.durable import (
    append_durably,
    read_json,
    read_with_digest,
    require_content,
    temporary_file,
    write_durably,
    write_json,
    write_with_digest,
)
from fedsilo.errors import FileDamaged


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

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
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


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "is empty"),
        (b"\0" * 20, "line 1, column 1 is not JSON"),
        (b'{"task": "r00001', "line 1, column 10 is not JSON"),
        (b'{"task":\n 1} {', "line 2, column 5 is not JSON"),
        (b'{"task": "\xff"}', "byte 10 is not UTF-8"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"9" * 5_000, "a number that is too long"),
    ],
    ids=["empty", "zeroed", "torn", "followed", "flipped", "nested", "long"],
)
def test_a_damaged_file_is_an_error_with_its_name_the_place_and_a_remedy(
    tmp_path: Path, content: bytes, place: str
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(FileDamaged, match=re.escape(f"{path}: ") + f".*{place}.*; remove it$") as caught:
        read_json(path, "remove it")
    assert (caught.value.exit_code, caught.value.reason) == (6, "FileDamaged")


def test_a_changed_bit_or_a_missing_end_does_not_pass_the_digest(tmp_path: Path) -> None:
    path, document = tmp_path / "state.json", {"rounds": {2: "zwölf", 10: 0.1}, "none": float("nan")}
    assert read_with_digest(path) is None
    write_with_digest(path, document)
    found, whole = read_with_digest(path), path.read_bytes()
    assert found is not None
    assert found["rounds"] == {"2": "zwölf", "10": 0.1}
    assert found.keys() == document.keys()
    damaged = [whole[:length] for length in range(len(whole))]
    for bit in range(8 * len(whole)):
        damaged.append(bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(whole)))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(FileDamaged, match=re.escape(str(path))):
            read_with_digest(path)


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


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_not_written(number: float, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_json(path, {"accuracy": 0.5})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"accuracy": [number]})
    assert read_json(path) == {"accuracy": 0.5}
