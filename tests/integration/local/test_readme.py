"""README.md and CONTRIBUTING.md on one machine: their commands, on a quickstart of one silo and one round."""

from __future__ import annotations

import pytest

from tests.integration.local.manifest import shortened_example, small_quickstart
from tests.pages import runs
from tests.terminal import Terminal

DEMO = ("quickstart.yaml", "fedavg.yaml", "ccvr.yaml", "creff.yaml")
"""The manifests of `make demo`."""


@runs(
    "README.md",
    ". .venv/bin/activate",
    "fedsilo validate -f examples/quickstart.yaml",
    "fedsilo run -f examples/quickstart.yaml --workdir runs/first",
    "fedsilo run -f examples/quickstart.yaml --workdir runs/first --resume",
    "fedsilo methods",
    "fedsilo methods ccvr",
    "fedsilo evaluate --model runs/first/model.safetensors -f examples/quickstart.yaml",
)
def test_from_a_manifest_to_a_model_that_is_scored(terminal: Terminal) -> None:
    activate, validate, run, resume, methods, ccvr, evaluate = terminal.commands
    small_quickstart(terminal.folder)
    terminal.type(activate)
    assert terminal.environment["VIRTUAL_ENV"]
    assert "federation/digits" in terminal.type(validate)
    assert "runs/first/model.safetensors" in terminal.type(run)
    said = terminal.type(resume)
    assert "runs/first/model.safetensors" in said
    assert {"fedavg", "fedconcat", "ccvr"} <= {
        line.split()[0] for line in terminal.type(methods).splitlines() if line
    }
    assert terminal.type(ccvr).startswith("ccvr: ")
    header, scores = terminal.type(evaluate).splitlines()
    assert header.split() == ["samples", "accuracy", "loss"]
    name, samples, accuracy, _ = scores.split()
    assert (name, samples) == ("test", "359")
    assert accuracy in said


@runs("README.md", "make demo")
@runs("CONTRIBUTING.md", "make demo")
@pytest.mark.thorough
def test_the_demo(terminal: Terminal) -> None:
    (terminal.folder / "examples").unlink()
    (terminal.folder / "examples").mkdir()
    for name in DEMO:
        (terminal.folder / "examples" / name).write_text(shortened_example(name))
    (demo,) = set(terminal.commands)
    said = terminal.type(demo)
    for words in ("north alone", "all, federated", "compared", "exchanged per silo"):
        assert words in said
    (run,) = (terminal.folder / "runs").iterdir()
    assert len(list(run.glob("*/model.safetensors"))) == len(DEMO)
