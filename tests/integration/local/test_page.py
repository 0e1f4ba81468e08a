"""docs/running-locally.md says what is so: its commands run, its Python writes what the examples read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from tests.integration.local.manifest import shortened_example, small_quickstart
from tests.integration.local.test_images import EXAMPLES
from tests.integration.local.test_result import FIELDS
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal

PAGE = "docs/running-locally.md"

EXAMPLES_OF_EACH = 20
"""Training images of each class: every silo must get ten."""


@runs(
    "docs/running-locally.md",
    "fedsilo validate -f examples/quickstart.yaml",
    "fedsilo run -f examples/quickstart.yaml --alone",
    "fedsilo run -f examples/quickstart.yaml --workdir runs/first --json",
    "fedsilo silo receipts runs/first",
    "pip install tensorboard",
    "tensorboard --logdir runs",
    "fedsilo run -f examples/quickstart.yaml --workdir runs/first --resume",
    "fedsilo run -f examples/quickstart.yaml --in-process --workers 2",
)
@pytest.mark.thorough
def test_the_commands_run(terminal: Terminal) -> None:
    small_quickstart(terminal.folder)
    for command in terminal.commands:
        if command.startswith("tensorboard"):
            with terminal.start_command(command, {"--logdir": "--port 0 --logdir"}) as server:
                assert server.stdout is not None
                assert any("http://" in line for line in server.stdout)
        else:
            said = terminal.type(command)
            if "receipts" in command:
                assert re.match(r"silo north: 1 update, \d+ bytes; the audit log holds, \d+ lines", said)
            if "--json" in command:
                assert list(json.loads(said)) == FIELDS
    of_command_line = list((terminal.folder / "runs").iterdir())
    assert len(of_command_line) == 3


def test_the_tables_name_what_is_there() -> None:
    for field in (*FIELDS, "message"):
        assert re.search(rf"^\|.*`{field}`", (ROOT / PAGE).read_text(), flags=re.MULTILINE), field


@runs(
    "docs/running-locally.md",
    "fedsilo run -f examples/mnist.yaml",
    "fedsilo run -f examples/cifar10.yaml",
    "fedsilo run -f examples/cifar10-images.yaml",
)
@pytest.mark.thorough
def test_the_python_writes_what_the_examples_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On noise, a round of each example's first silo; test_images.py has more of them, on digits."""
    random = np.random.default_rng(0)

    def fake(shape: tuple[int, ...]) -> Any:
        def dataset(_root: str, *, train: bool, download: bool) -> Any:
            assert download
            labels = list(range(10)) * (EXAMPLES_OF_EACH if train else 1)
            images = random.integers(0, 256, (len(labels), *shape), dtype=np.uint8)
            return SimpleNamespace(data=images, targets=labels, classes=[f"class{k}" for k in range(10)])

        return dataset

    torchvision = SimpleNamespace(MNIST=fake((28, 28)), CIFAR10=fake((32, 32, 3)))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(datasets=torchvision))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", torchvision)
    examples = terminal.folder / "examples"
    examples.unlink()
    monkeypatch.chdir(terminal.folder)
    (code,) = blocks(PAGE, "python")
    exec(compile(code, "running-locally.md", "exec"), {})
    for name in EXAMPLES:
        for path in _paths(name):
            assert (examples / path).exists(), path
    with np.load("examples/data/cifar10/test.npz") as archive:
        assert (archive["images"].shape, archive["labels"].tolist()) == ((10, 32, 32, 3), list(range(10)))
    folders = sorted(Path("examples/data/cifar10-images/train").iterdir())
    assert [len(list(folder.glob("*.png"))) for folder in folders] == [EXAMPLES_OF_EACH] * 10
    for name, command in zip(EXAMPLES, terminal.commands, strict=True):
        (examples / f"{name}.yaml").write_text(shortened_example(f"{name}.yaml"))
        assert "model.safetensors" in terminal.type(command)


def _paths(name: str) -> set[str]:
    documents = list(yaml.safe_load_all((ROOT / "examples" / f"{name}.yaml").read_text()))
    datasets = [dataset for document in documents for dataset in document["spec"].get("datasets", ())]
    datasets += documents[-1]["spec"]["aggregator"]["datasets"]
    return {dataset["config"]["path"] for dataset in datasets}
