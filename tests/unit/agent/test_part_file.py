"""A blob is hashed as it arrives; only what somebody else has written is read for that."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from fedsilo.files import durable, early_writing
from fedsilo.files.durable import DiskStep
from fedsilo_agent.guard.part_file import PartFile

PIECES = [bytes([number]) * 1000 for number in range(5)]
DIGEST = hashlib.sha256(b"".join(PIECES)).hexdigest()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read from their beginning."""
    found: list[Path] = []
    read = PartFile._read

    def count_read(part: PartFile) -> None:
        found.append(part.path)
        read(part)

    monkeypatch.setattr(PartFile, "_read", count_read)
    return found


def test_what_arrives_is_never_read_again(tmp_path: Path, reads: list[Path]) -> None:
    with PartFile(tmp_path / "blob") as part:
        for number, piece in enumerate(PIECES):
            assert part.size() == 1000 * number
            part.append(piece)
        assert part.digest() == DIGEST
        part.publish()
    assert reads == []
    assert (tmp_path / "blob").read_bytes() == b"".join(PIECES)


def test_the_hash_is_that_of_the_blobs_name(tmp_path: Path) -> None:
    digest = f"blake3-{blake3(b''.join(PIECES)).hexdigest()}"
    for piece in PIECES:  # each by a process of its own
        with PartFile(tmp_path / digest) as part:
            assert part.size() == PIECES.index(piece) * 1000
            part.append(piece)
    assert part.digest() == digest
    with part:
        part.clear()
        part.append(b"other")
    assert part.digest() == f"blake3-{blake3(b'other').hexdigest()}"


def test_what_an_earlier_process_has_left_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    with PartFile(tmp_path / "blob") as part:
        part.append(PIECES[0])
    with PartFile(tmp_path / "blob") as part:
        assert [part.size(), part.size()] == [1000, 1000]
        for piece in PIECES[1:]:
            part.append(piece)
        assert part.digest() == DIGEST
    assert len(reads) == 1


def test_a_piece_of_which_the_disk_took_only_a_part_is_in_the_digest_as_far_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Path]
) -> None:
    def tear(step: DiskStep, perform: Callable[[], None]) -> None:
        perform()
        os.truncate(step.path, 1400)
        raise OSError(errno.ENOSPC, "No space left on device", str(step.path))

    with PartFile(tmp_path / "blob") as part:
        part.append(PIECES[0])
        with monkeypatch.context() as full:
            full.setattr(durable, "intercept", tear)
            with pytest.raises(OSError, match="No space"):
                part.append(PIECES[1])
        assert part.size() == 1400
        part.append(PIECES[1][400:])
        for piece in PIECES[2:]:
            part.append(piece)
        assert part.digest() == DIGEST
    assert len(reads) == 1


def test_a_part_that_does_not_hold_is_forgotten(tmp_path: Path) -> None:
    with PartFile(tmp_path / "blob") as part:
        part.append(b"damaged")
        part.clear()
        assert part.size() == 0
        for piece in PIECES:
            part.append(piece)
        assert part.digest() == DIGEST
        part.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]


def test_a_blob_holds_one_descriptor_and_gives_it_back(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with PartFile(tmp_path / "blob") as part:
        for piece in PIECES:
            part.append(piece)
            assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_can_be_had_again_is_not_pushed_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> int:
        raise AssertionError("its pages may be gone before the system writes them")

    monkeypatch.setattr(early_writing, "EARLY_BYTES", 10)
    monkeypatch.setattr(early_writing, "_sync_file_range", lambda: fail)
    with PartFile(tmp_path / "blob") as part:
        for _ in range(4):
            part.append(b"12345678")
        assert part.size() == 32
