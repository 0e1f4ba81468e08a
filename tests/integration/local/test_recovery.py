"""Kill anything at any time: the model is the same, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.local.conftest import Launch
from tests.integration.local.runs import (
    EndedRun,
    end,
    fedsilo,
    history,
    kill,
    pids,
    run,
    running_processes,
    training,
    wait_until,
)


def _in_a_later_round(run: subprocess.Popen[str], workdir: Path) -> None:
    """Return while round 2 or 3 is open and north's trainer is at work."""
    wait_until(lambda: training(workdir, "north", round=2), "a task of round 2")
    assert run.poll() is None


def _require_same(ended: EndedRun, undisturbed: EndedRun) -> None:
    assert ended.code == 0, ended.err
    assert ended.document["model"]["sha256"] == undisturbed.document["model"]["sha256"]
    assert ended.document["metrics"] == undisturbed.document["metrics"]
    assert [line["samples"] for line in ended.history] == [line["samples"] for line in undisturbed.history]
    assert all(not line["failed"] and not line["missing"] for line in ended.history)
    assert running_processes(ended.workdir) == {}


def test_the_same_manifest_gives_the_same_model(
    undisturbed_run: EndedRun, steady_manifest: Path, tmp_path: Path
) -> None:
    _require_same(run(steady_manifest, tmp_path / "run", cold=True), undisturbed_run)


@pytest.mark.parametrize(
    "parts",
    [
        ["aggregator"],
        pytest.param(["north trainer", "east guard"], marks=pytest.mark.thorough),
        pytest.param(["fork server"], marks=pytest.mark.thorough),
    ],
    ids=", ".join,
)
def test_a_killed_process_is_started_again_and_the_model_is_the_same(
    parts: list[str], undisturbed_run: EndedRun, steady_manifest: Path, tmp_path: Path, launch: Launch
) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir)
    _in_a_later_round(process, workdir)
    before = {part: kill(workdir, part) for part in parts}
    for part in parts:
        wait_until(lambda part=part: pids(workdir)[part] not in (None, before[part]), f"a new {part}")  # type: ignore[misc]
    _require_same(end(process, workdir), undisturbed_run)
    said = fedsilo("verify", str(workdir))
    assert said.returncode == 0, said.stderr
    assert "3 exchanges: 6 tasks signed by the job, 6 updates signed by 2 silos" in said.stdout
    assert "not replayed: no updates are kept here" in said.stdout


def test_a_killed_run_leaves_nothing_running_and_resumes_to_the_same_model(
    undisturbed_run: EndedRun, steady_manifest: Path, tmp_path: Path, launch: Launch
) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir)
    _in_a_later_round(process, workdir)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not running_processes(workdir), "the end of all processes")
    done = len(history(workdir))
    assert 1 <= done < 3
    ended = run(steady_manifest, workdir, "--resume")
    assert f"round {done}/3" not in ended.err
    _require_same(ended, undisturbed_run)


@pytest.mark.thorough
def test_a_run_whose_disk_damaged_an_accepted_update_resumes_to_the_same_model(
    undisturbed_run: EndedRun, steady_manifest: Path, tmp_path: Path, launch: Launch
) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir)
    _in_a_later_round(process, workdir)
    guard = pids(workdir)["north guard"]
    assert guard is not None
    os.kill(guard, signal.SIGSTOP)  # so that the round stays open

    def accepted_updates() -> list[Path]:
        found = sorted(workdir.glob("aggregator/open/*/*.update"))
        return [] if any(path.stem.endswith("-north") for path in found) else found

    wait_until(accepted_updates, "the answer of another silo")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    os.kill(guard, signal.SIGKILL)  # one that went on could still complete the round
    wait_until(lambda: not running_processes(workdir), "the end of all processes")
    update, *_ = accepted_updates()
    content = bytearray(update.read_bytes())
    content[-1] ^= 1
    update.write_bytes(content)
    _require_same(run(steady_manifest, workdir, "--resume"), undisturbed_run)
    log = (workdir / "logs" / "aggregator.log").read_text()
    assert f"{update}: the accepted update of " in log
