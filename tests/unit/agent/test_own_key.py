"""A guard signs with the key of its job, whichever the silo has made since."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.errors import FileDamaged
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.own_key import signing_key

OLD_KEY, NEW_KEY, OTHER_KEY = (SigningKey.from_seed(letter * 32) for letter in (b"o", b"n", b"x"))


def mount_secret(folder: Path, **entries: SigningKey) -> Path:
    """A key folder as a kubelet mounts a Secret: each entry is a link into a directory that it replaces as a whole."""
    data = folder / "..2026_11_21"
    data.mkdir()
    (folder / "..data").symlink_to(data.name)
    for name, key in entries.items():
        (data / f"{name}.pem").write_bytes(key.to_pem())
        (folder / f"{name}.pem").symlink_to(f"..data/{name}.pem")
    return folder / "key.pem"


def test_the_newest_key_is_taken_where_the_job_has_that(tmp_path: Path) -> None:
    path = mount_secret(tmp_path, key=NEW_KEY, before=OLD_KEY)
    assert signing_key(path, NEW_KEY.verify_key.to_text()).verify_key == NEW_KEY.verify_key


def test_a_job_that_began_with_an_earlier_key_ends_with_that(tmp_path: Path) -> None:
    path = mount_secret(tmp_path, key=NEW_KEY, a=OTHER_KEY, before=OLD_KEY)
    (tmp_path / "broken.pem").write_text("no key")
    (tmp_path / "directory.pem").mkdir()
    assert signing_key(path, OLD_KEY.verify_key.to_text()).verify_key == OLD_KEY.verify_key


def test_a_key_that_is_nowhere_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = mount_secret(tmp_path, key=NEW_KEY, a=OTHER_KEY)
    assert signing_key(path, OLD_KEY.verify_key.to_text()).verify_key == NEW_KEY.verify_key
    assert OLD_KEY.verify_key.to_text() in caplog.text
    assert "restore it" in caplog.text


def test_a_missing_file_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(FileDamaged):
        signing_key(tmp_path / "key.pem", OLD_KEY.verify_key.to_text())
