"""The programs of docs/python.md, one after the other, as a reader would run them."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import fedsilo
from fedsilo.local import child_processes
from tests import warm
from tests.integration.local.manifest import python, silo, silos, small_quickstart, write
from tests.integration.local.runs import ENVIRONMENT, running_processes
from tests.pages import blocks
from tests.terminal import Terminal

PAGE = "docs/python.md"


def test_the_programs_of_the_page_run(terminal: Terminal) -> None:
    small_quickstart(terminal.folder)
    said = []
    for code in blocks(PAGE, "python"):
        (terminal.folder / "program.py").write_text(code)
        done = warm.run("tests.warm.script", ["program.py"], cwd=terminal.folder, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    simulated, processes, evaluated = said
    assert "round  silos  samples" in simulated and "runs/simulated/model.safetensors" in simulated
    assert processes.splitlines()[0].startswith("1 {'accuracy'") and "north" in processes
    assert evaluated.startswith("test 359 ")
    models = [terminal.folder / "runs" / way / "model.safetensors" for way in ("simulated", "processes")]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.thorough
def test_a_run_works_in_a_thread_and_while_an_event_loop_runs(tmp_path: Path) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north"), training={"rounds": 2})
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    told: list[int] = []
    found: list[Any] = []

    def run() -> None:
        found.append(
            fedsilo.run(manifest, tmp_path / "run", on_round=lambda record: told.append(record["round"]))
        )
        found.append(threading.active_count())

    async def notebook() -> None:
        await asyncio.to_thread(run)

    asyncio.run(notebook())
    result, _ = found
    assert told == [1, 2] == [record["round"] for record in result.history]
    assert result.metrics["accuracy"] == result.history[-1]["metrics"]["accuracy"]
    assert result.model().feature == 16
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert running_processes(tmp_path / "run") == {}


def test_a_job_that_fails_raises_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [*silos("north"), silo("east", python("crash"))]
    manifest = write(tmp_path / "digits.yaml", members, backoffLimit=0)
    monkeypatch.setattr(child_processes, "subprocess", warm.subprocess_of_a_run())
    with pytest.raises(fedsilo.QuorumLost, match="silo-east/east failed: TrainerLost") as raised:
        fedsilo.run(manifest, tmp_path / "run", display=False)
    assert (raised.value.exit_code, raised.value.reason) == (4, "QuorumLost")
    assert running_processes(tmp_path / "run") == {}


@pytest.mark.thorough
def test_an_interrupted_run_leaves_nobody_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "subprocess", warm.subprocess_of_a_run())
    manifest = write(tmp_path / "digits.yaml", silos("north"), training={"rounds": 2})

    def interrupt(_record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsilo.run(manifest, tmp_path / "run", on_round=interrupt, display=False)
    assert running_processes(tmp_path / "run") == {}
    with pytest.raises(fedsilo.WorkdirConflict, match="holds a run of this job already"):
        fedsilo.run(manifest, tmp_path / "run", display=False)
    result = fedsilo.run(manifest, tmp_path / "run", resume=True, display=False)
    assert len(result.history) == 2
