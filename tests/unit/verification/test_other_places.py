"""What a person reads who verifies something that is no result of a job."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo.files.json_files import write_with_digest
from fedsilo.files.locking import DirectoryLock
from fedsilo.verification.place import find

RUN = {"job": "j", "uid": "u", "specDigest": "d"}


def refusal_text(path: Path) -> str:
    with pytest.raises(ManifestInvalid) as refusal:
        find(path)
    text = str(refusal.value)
    assert text.startswith(f"{path}: ")
    return text


def test_nothing_at_all_and_an_empty_directory(tmp_path: Path) -> None:
    assert "there is no such directory; name the directory of a run" in refusal_text(tmp_path / "nowhere")
    assert "is an empty directory; name the directory of a run" in refusal_text(tmp_path)


def test_files_are_said_to_be_what_they_are(tmp_path: Path) -> None:
    model, archive, text = tmp_path / "model.safetensors", tmp_path / "run.tar.gz", tmp_path / "job.yaml"
    model.write_bytes(b"a model")
    text.write_text("kind: FederatedJob")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(text)
    assert "is a model alone" in refusal_text(model)
    assert "is an archive; unpack it" in refusal_text(archive)
    assert "is a file, and no directory" in refusal_text(text)
    (tmp_path / "provenance.json").touch()
    assert f"is a file; name its directory, {tmp_path}" in refusal_text(model)


def test_a_run_without_a_model_still_runs_or_can_go_on(tmp_path: Path) -> None:
    write_with_digest(tmp_path / "run.json", RUN)
    assert "its job has no model yet: let it go on (fedsilo run --resume)" in refusal_text(tmp_path)
    with DirectoryLock(tmp_path) as lock:
        assert lock.acquire()
        assert "its job has no model yet and still runs: verify it at its end" in refusal_text(tmp_path)
    aggregator = tmp_path / "copied"
    aggregator.mkdir()
    (aggregator / "state.json").touch()
    assert "its job has no model yet" in refusal_text(aggregator)


def test_what_is_not_signed_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    assert "in which nothing is signed, or was fetched without --with-provenance" in refusal_text(tmp_path)
    write_with_digest(tmp_path / "run.json", RUN | {"inProcess": True})
    assert "holds a run in one process, in which nothing is signed" in refusal_text(tmp_path)


def test_other_directories_of_fedsilo_are_known(tmp_path: Path) -> None:
    names = ["sweep", "silo", "runs", "other"]
    sweep, silo, runs, other = (tmp_path / name for name in names)
    for path in ("sweep/sweep.json", "silo/audit/log.jsonl", "runs/a/provenance.json", "other/notes.txt"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert "it holds a sweep" in refusal_text(sweep)
    assert "it is a silo's, and fedsilo silo receipts" in refusal_text(silo)
    assert "it holds other directories that have: name one, a" in refusal_text(runs)
    assert "has no provenance.json; name the directory of a run" in refusal_text(other)
