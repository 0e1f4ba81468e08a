"""A working directory whose files were damaged is refused, with the file, what is wrong and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsilo.api.loading import JobManifest, load
from fedsilo.errors import FileDamaged, Problem
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.workdir import RunDirectory
from tests.integration.local.manifest import silos, write


@pytest.fixture
def manifest(tmp_path: Path) -> JobManifest:
    return load(write(tmp_path / "job.yaml", silos("north")))


@pytest.fixture
def workdir(manifest: JobManifest, tmp_path: Path) -> RunDirectory:
    """The directory of an earlier run."""
    workdir = RunDirectory(tmp_path / "run")
    claim(workdir, manifest, resume=False)
    return workdir


def claim(workdir: RunDirectory, manifest: JobManifest, resume: bool = True) -> str:
    said: list[str] = []
    with workdir.hold_directory(manifest, resume, DiskSpaceCheck(workdir.root, said.append)) as uid:
        assert said == []
        return uid


def test_a_run_is_resumed_under_its_uid(workdir: RunDirectory, manifest: JobManifest) -> None:
    recorded = json.loads((workdir.root / "run.json").read_bytes())
    assert claim(workdir, manifest) == recorded["uid"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(200),
        b'{"job": "federation/digits", "ui',
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"uid"',
        b"{}",
        b'{"job": "federation/digits", "uid": "1"}',
        b'{"job": "federation/digits", "specDigest": "0", "uid": 7}',
        b'{"job": [], "specDigest": "0", "uid": "1"}',
        b"[" * 100_000,
    ],
    ids=[
        "empty",
        "zeros",
        "cut",
        "bytes",
        "null",
        "list",
        "text",
        "nothing",
        "missing",
        "uid",
        "job",
        "deep",
    ],
)
def test_a_damaged_record_of_the_run_is_named(
    content: bytes, workdir: RunDirectory, manifest: JobManifest
) -> None:
    path = workdir.root / "run.json"
    path.write_bytes(content)
    with pytest.raises(FileDamaged) as raised:
        claim(workdir, manifest)
    said = str(raised.value)
    assert said.startswith(f"{path}: ")
    assert "; " in said, "the remedy follows the problem"
    assert "\n" not in said
    assert path.read_bytes() == content


def test_a_single_flipped_bit_of_the_record_is_noticed(workdir: RunDirectory, manifest: JobManifest) -> None:
    path = workdir.root / "run.json"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FileDamaged):
            claim(workdir, manifest)


@pytest.mark.parametrize("name", ["aggregator-secrets/task-key.pem", "silos/north/guard/key.pem"])
@pytest.mark.parametrize("content", [b"", bytes(119), b"-----BEGIN PRIVATE KEY-----\n"])
def test_a_damaged_key_is_named(
    name: str, content: bytes, workdir: RunDirectory, manifest: JobManifest
) -> None:
    workdir.write_inputs(manifest, "uid", 1)
    (workdir.root / name).write_bytes(content)
    with pytest.raises(Problem) as raised:
        workdir.write_inputs(manifest, "uid", 1)
    assert str(workdir.root / name) in str(raised.value)
    assert str(raised.value).endswith("; make a new one")
    (workdir.root / name).unlink()
    workdir.write_inputs(manifest, "uid", 1)


def test_a_result_is_there_whole_or_not_at_all(
    workdir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir.aggregator.mkdir()
    (workdir.aggregator / "model.json").write_text("new")
    (workdir.root / "model.json").write_text("old")

    def fail(_source: Path, target: Path) -> None:
        target.write_text("n")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr("shutil.copyfile", fail)
        workdir.collect()
    assert (workdir.root / "model.json").read_text() == "old"
    workdir.collect()
    assert (workdir.root / "model.json").read_text() == "new"
    assert sorted(path.name for path in workdir.root.iterdir()) == [
        "aggregator",
        "lock",
        "model.json",
        "run.json",
    ]
