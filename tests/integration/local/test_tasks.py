"""The commands of docs/tasks.md, and its task of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fedsilo.api.job import FederatedJob, LearningTaskSpec
from fedsilo.api.loading import JobManifest
from fedsilo.simulation.simulate import simulate
from fedsilo.validation import load_manifest
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal

PAGE = "docs/tasks.md"


@runs("docs/tasks.md")
@pytest.mark.thorough
def test_the_commands_of_the_page(terminal: Terminal) -> None:
    assert "regression" in terminal.type("fedsilo validate -f examples/tasks/regression.yaml")
    ended = terminal.type("fedsilo run -f examples/tasks/regression.yaml --workdir runs/regression")
    assert "mae" in ended
    scored = terminal.type(
        "fedsilo evaluate --model runs/regression/model.safetensors -f examples/tasks/regression.yaml"
    )
    assert scored.split()[:3] == ["samples", "mae", "loss"]
    terminal.type("fedsilo run -f examples/tasks/segmentation.yaml --in-process --workdir runs/segmentation")
    assert (terminal.folder / "runs" / "segmentation" / "model.safetensors").is_file()


def test_a_task_of_ones_own_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(PAGE, "python")
    module = ModuleType("own_task")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "own_task", module)
    job = load_manifest(ROOT / "examples" / "tasks" / "regression.yaml")
    spec = job.job.spec.model_copy(update={"task": LearningTaskSpec(name="python:own_task:Median")})
    own = FederatedJob(metadata=job.job.metadata, spec=spec)
    simulation = simulate(JobManifest(job.file, own, job.silos), tmp_path, tmp_path / "run")
    assert simulation.result is not None
    losses = [line["metrics"]["loss"] for line in simulation.history()]
    assert losses[-1] < min(losses[0], 0.5), "always saying the median is wrong by 0.65"
    assert simulation.result.metrics.keys() == {"loss"}
