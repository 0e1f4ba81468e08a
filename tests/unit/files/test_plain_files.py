"""What may lie under the name of a file: only a plain file of bounded size is read, nothing waits or leads outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.errors import FileDamaged, UnfitFile
from fedsilo.files.durable import read_file, require_content
from fedsilo.files.locking import DirectoryLock, hold_exclusive_lock
from fedsilo.files.plain_files import open_plain, read_named, read_plain

TERABYTE = 1 << 40


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_out(path: Path) -> None:
    secret = path.parent.parent / "secret"
    secret.write_text("of nobody's business")
    path.symlink_to(secret)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)


UNFIT_FILES: dict[Callable[[Path], None], str] = {
    pipe: "is a pipe",
    link_out: "is a link",
    link_to_a_device: "is a link",
    unix_socket: "is a socket",
    sparse: f"has {TERABYTE} bytes, and may have 1000",
    Path.mkdir: "Is a directory",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "file"


@pytest.mark.parametrize(
    ("make", "what"), UNFIT_FILES.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_anything_but_a_plain_file_is_named_and_not_read(
    make: Callable[[Path], None], what: str, path: Path
) -> None:
    make(path)
    with pytest.raises(OSError) as caught:
        read_plain(path, 1000)
    assert caught.value.strerror == what
    assert caught.value.filename == str(path)
    with pytest.raises(FileDamaged, match=f"file: cannot be read .{what}.; do something"):
        read_file(path, "do something", most=1000)


def test_an_unfit_file_says_in_all_its_texts_what_to_do(path: Path) -> None:
    pipe(path)
    with pytest.raises(UnfitFile) as caught:
        read_plain(path, 1000)
    assert str(caught.value) == f"{path}: is a pipe; put a plain file of fedsilo's there"
    assert caught.value.redacted_text == caught.value.marked_text == str(caught.value)


@pytest.mark.parametrize("make", [pipe, link_out, link_to_a_device, unix_socket, Path.mkdir])
def test_a_digest_is_taken_of_plain_files_only(make: Callable[[Path], None], path: Path) -> None:
    make(path)
    with pytest.raises(FileDamaged, match="file: cannot be read"):
        require_content(path, "0" * 64)


@pytest.mark.parametrize("make", [pipe, link_out, link_to_a_device, unix_socket, Path.mkdir])
def test_a_lock_is_a_plain_file(make: Callable[[Path], None], path: Path) -> None:
    make(path)
    with pytest.raises(FileDamaged, match="file: is not a file; remove it"), hold_exclusive_lock(path):
        pass
    path.rename(path.with_name("lock"))
    with pytest.raises(FileDamaged, match="lock: is not a file; remove it"):
        DirectoryLock(path.parent)


def test_of_what_a_holder_has_written_only_the_beginning_is_read(path: Path) -> None:
    sparse(path.with_name("lock"))
    with DirectoryLock(path.parent) as lock:
        assert len(lock.holder) <= 1024


AS_NOBODY = """
import os, sys
from pathlib import Path
from fedsilo.files.plain_files import open_plain
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for root in sys.argv[2:]:
    print(open_plain(Path(sys.argv[1]), Path(root)).read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="the system has no descriptors for searching alone")
def test_a_directory_need_not_be_listed_to_open_what_is_in_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        inner = home / "inner"
        inner.mkdir()
        (inner / "file").write_text("content")
        for directory in (home, inner):
            directory.chmod(0o711)
        arguments = [str(inner / "file"), str(inner), str(home)]
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, *arguments], capture_output=True, check=False, text=True
        )
    assert ran.stdout == "content\ncontent\n", ran.stderr


def test_no_directory_below_the_root_may_be_a_link(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"content")
    (tmp_path / "linked").symlink_to(path.parent)
    assert read_plain(tmp_path / "linked/file", 7) == b"content", (
        "a root that a person has named may be a link"
    )
    with pytest.raises(UnfitFile, match="lies in linked, which is a link"):
        open_plain(tmp_path / "linked/file", root=tmp_path)
    with open_plain(tmp_path / "folder/file", root=tmp_path) as file:
        assert file.read() == b"content"


def test_a_name_that_a_person_gives_may_be_a_link_within_its_directory(path: Path) -> None:
    (path.parent / "..data").mkdir()
    (path.parent / "..data/file").write_bytes(b"content")
    path.symlink_to("..data/file")
    assert read_named(path, 1000) == b"content", "as Kubernetes mounts a ConfigMap"
    for make in (link_out, link_to_a_device):
        path.unlink()
        make(path)
        with pytest.raises(UnfitFile, match="is a link that leads out of its directory"):
            read_named(path, 1000)
    path.unlink()
    path.symlink_to("file")
    with pytest.raises(UnfitFile, match="is a link"):
        read_named(path, 1000)
    path.unlink()
    path.symlink_to("nothing")
    with pytest.raises(FileNotFoundError):
        read_named(path, 1000)


def test_what_a_shell_hands_over_is_read_up_to_its_bound() -> None:
    read, write = os.pipe()
    writer = threading.Thread(target=os.write, args=(write, b"x" * 5))
    writer.start()
    try:
        writer.join()
        os.close(write)
        assert read_named(Path(f"/dev/fd/{read}"), 5) == b"xxxxx"
    finally:
        os.close(read)
    imports = "from pathlib import Path; from fedsilo.files.plain_files import read_named"
    code = f"{imports}; read_named(Path('/dev/stdin'), 9)"
    with Path("/dev/zero").open("rb") as endless:
        ended = subprocess.run([sys.executable, "-c", code], stdin=endless, capture_output=True, check=False)
    assert b"has more than 9 bytes" in ended.stderr


def test_a_file_that_is_not_there_is_no_unfit_one(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        open_plain(path)
    assert caught.value.filename == str(path)
    assert read_file(path) is None
    with pytest.raises(FileNotFoundError):
        open_plain(path / "below" / "file", root=path)
