"""What real processes leave holds, folds again to the same bytes, and does not hold any more once it was changed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.integration.local.conftest import STEADY_TRAINING, Launch
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import (
    EndedRun,
    end,
    fedsilo,
    kill,
    pids,
    run,
    training,
    wait_until,
)
from tests.pages import runs
from tests.terminal import Terminal

KEEPING = {"keepUpdates": True}


def verify(directory: Path, *options: str) -> CompletedProcess[str]:
    return fedsilo("verify", str(directory), *options)


@pytest.mark.parametrize(
    ("method", "config", "digest"),
    [
        ("fedavg", {}, "sha256"),
        pytest.param("scaffold", {}, "blake3", marks=pytest.mark.thorough),
        pytest.param(
            "fedconcat",
            {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1},
            "sha256",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_run_is_verified_and_replayed(
    tmp_path: Path, method: str, config: dict[str, Any], digest: str
) -> None:
    manifest = write(
        tmp_path / "digits.yaml",
        silos("north", "east"),
        method={"name": method, "config": config},
        aggregator=KEEPING,
        communication={"digest": digest},
    )
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0, ended.err
    sha256 = ended.document["model"]["sha256"]
    for directory in (tmp_path / "run", tmp_path / "run" / "aggregator"):
        said = verify(directory, "--replay")
        assert (said.returncode, said.stderr) == (0, "")
        assert f"model {sha256}, sealed by the job" in said.stdout
        assert "replayed: the kept updates fold to every state of the chain" in said.stdout

    kept = next((tmp_path / "run" / "aggregator" / "kept").glob("r00001-*/*-east.update"))
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    said = verify(tmp_path / "run")
    assert said.returncode == 9
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert line.startswith(f"fedsilo: {kept}: round 1, silo silo-east/east: digest-mismatch: block ")


@pytest.mark.thorough
def test_with_blake3_killed_processes_go_on_with_blobs_and_updates_that_they_find_whole(
    tmp_path: Path, launch: Launch, undisturbed_run: EndedRun
) -> None:
    training_of_steady = STEADY_TRAINING | {"optimizer": {"learningRate": 0.05}}
    manifest = write(
        tmp_path / "digits.yaml",
        silos("north", "east"),
        training=training_of_steady,
        aggregator=KEEPING,
        communication={"digest": "blake3"},
    )
    workdir = tmp_path / "run"
    process = launch(manifest, workdir)
    wait_until(lambda: training(workdir, "north", 2), "round 2")
    kill(workdir, "north guard")
    kill(workdir, "aggregator")
    wait_until(lambda: training(workdir, "east", 3), "round 3")
    kill(workdir, "east trainer")
    ended = end(process, workdir)
    assert ended.code == 0, ended.err
    assert ended.document["model"]["sha256"] == undisturbed_run.document["model"]["sha256"]
    said = verify(workdir, "--replay")
    assert (said.returncode, said.stderr) == (0, "")


def test_a_run_that_goes_on_and_one_without_signatures_have_nothing_to_verify(
    steady_manifest: Path, tmp_path: Path, launch: Launch
) -> None:
    process = launch(steady_manifest, tmp_path / "run")
    wait_until(lambda: training(tmp_path / "run", "north", 2), "round 2")
    guard = pids(tmp_path / "run")["north guard"]
    assert guard is not None
    os.kill(guard, signal.SIGSTOP)  # so that the round stays open
    said = verify(tmp_path / "run")
    os.kill(guard, signal.SIGCONT)
    assert (said.returncode, said.stdout) == (2, "")
    assert (
        "has no provenance.json; its job has no model yet and still runs: verify it at its end" in said.stderr
    )
    os.kill(process.pid, signal.SIGINT)
    process.communicate()

    manifest = write(tmp_path / "small.yaml", silos("north"), training={"rounds": 1})
    assert run(manifest, tmp_path / "in-process", "--in-process").code == 0
    said = verify(tmp_path / "in-process")
    assert (said.returncode, said.stdout) == (2, "")
    assert (
        "holds a run in one process, in which nothing is signed: there is no provenance.json" in said.stderr
    )


@runs("docs/provenance.md")
def test_the_commands_of_the_page_run(terminal: Terminal) -> None:
    (terminal.folder / "examples").unlink()
    (terminal.folder / "examples").mkdir()
    write(
        terminal.folder / "examples" / "quickstart.yaml",
        silos("north"),
        training={"rounds": 1},
        aggregator=KEEPING,
    )
    started, checked, pinned, replayed = terminal.commands
    terminal.type(started)
    assert "keys that this directory alone claims" in terminal.type(checked)
    agent = json.loads((terminal.folder / "runs/first/silos/north/agent.json").read_text())
    said = terminal.type(pinned, {"ed25519:...": agent["spec"]["trust"]["publicKey"]})
    assert f"keys pinned with --key:\n  silo-north/north {agent['spec']['trust']['publicKey']}\n" in said
    assert "byte for byte" in terminal.type(replayed)
