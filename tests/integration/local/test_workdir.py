"""A working directory is one run's: whatever else is asked of it, exit code 6 and nothing changed inside."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.integration.local.conftest import Launch
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import EndedRun, end, pids, run, wait_until


def _contents(directory: Path) -> dict[str, str]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(
    ("options", "rounds", "message"),
    [
        ([], 3, "holds a run of this job already; add --resume to go on with it, or name another directory"),
        (["--resume"], 7, "belongs to job federation/digits with specification "),
        ([], 7, "belongs to job federation/digits with specification "),
    ],
)
def test_of_an_earlier_run(
    options: list[str],
    rounds: int,
    message: str,
    undisturbed_run: EndedRun,
    steady_manifest: Path,
    tmp_path: Path,
) -> None:
    manifest = steady_manifest
    if rounds != 3:
        manifest = write(tmp_path / "other.yaml", silos("north", "east"), training={"rounds": rounds})
    before = _contents(undisturbed_run.workdir)
    refused = run(manifest, undisturbed_run.workdir, *options)
    assert (refused.code, refused.out) == (6, "")
    (line,) = refused.err.splitlines()
    assert line.startswith(f"fedsilo: {undisturbed_run.workdir}: {message}")
    assert "name another directory with --workdir" in line
    assert _contents(undisturbed_run.workdir) == before


@pytest.mark.thorough
def test_used_by_another_run_at_the_same_time(tmp_path: Path, launch: Launch) -> None:
    manifest = write(tmp_path / "long.yaml", silos("north", "east"), training={"rounds": 1000})
    workdir = tmp_path / "run"
    first = launch(manifest, workdir)
    wait_until(lambda: pids(workdir), "the first run's processes")
    for options in ([], ["--resume"]):
        refused = run(manifest, workdir, *options)
        assert (refused.code, refused.out) == (6, "")
        assert (
            f"another run (process {first.pid}) is using it; wait for its end or name another" in refused.err
        )
    assert first.poll() is None
    first.terminate()
    assert end(first, workdir).code == 143


@pytest.mark.parametrize("exists", [True, False])
def test_resume_where_there_is_no_run(exists: bool, steady_manifest: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    if exists:
        workdir.mkdir()
    refused = run(steady_manifest, workdir, "--resume")
    assert refused.code == 6
    assert refused.err == f"fedsilo: {workdir}: holds no run to resume; leave out --resume to begin one\n"
    assert workdir.exists() == exists
    assert not exists or not list(workdir.iterdir())


def test_of_something_else(steady_manifest: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "papers"
    workdir.mkdir()
    (workdir / "thesis.tex").write_text("...")
    refused = run(steady_manifest, workdir)
    assert refused.code == 6
    assert "is not empty (thesis.tex) and holds no run; name an empty directory" in refused.err
    assert list(_contents(workdir)) == ["thesis.tex"]


def test_a_file(steady_manifest: Path) -> None:
    refused = run(steady_manifest, steady_manifest)
    assert refused.code == 6
    assert refused.err == f"fedsilo: {steady_manifest}: is not a directory; name another with --workdir\n"
