"""The revision that a result is kept with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.tables.results import REVISION, revision


def test_a_revision_without_git_and_one_that_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(tmp_path) == "unknown"
    monkeypatch.setenv(REVISION, "0123abc")
    assert revision(tmp_path) == "0123abc"


def git(place: Path, *words: str) -> None:
    person = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", "-C", str(place), *person, *words], check=True, capture_output=True)


def test_a_revision_is_dirty_when_code_is_and_not_when_results_are(tmp_path: Path) -> None:
    code, results = tmp_path / "code.py", tmp_path / "docs" / "results" / "lines.jsonl"
    results.parent.mkdir(parents=True)
    code.write_text("1")
    results.write_text("1")
    assert revision(tmp_path) == "unknown"
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = revision(tmp_path)
    assert len(clean) >= 7 and "dirty" not in clean
    results.write_text("2")
    (tmp_path / "data.npz").write_text("not tracked")
    assert revision(tmp_path) == clean
    code.write_text("2")
    assert revision(tmp_path) == f"{clean}-dirty"
