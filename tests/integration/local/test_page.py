"""docs/running-locally.md says what is so: its commands run, its Python writes what the examples read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import ENVIRONMENT
from tests.integration.local.test_images import EXAMPLES
from tests.integration.local.test_result import FIELDS
from tests.paths import ROOT

SERVER = "tensorboard --logdir runs"
PAGE = (ROOT / "docs" / "running-locally.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_commands_run(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    write(tmp_path / "examples" / "quickstart.yaml", silos("north"), training={"rounds": 1})
    commands = [line for block in _blocks("sh") for line in block.splitlines()]
    # Those of real images are run by test_images.py.
    images = [f"fedsilo run -f examples/{name}.yaml" for name in EXAMPLES]
    assert set(images) < set(commands)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        if command == SERVER:
            _serves(command.split(), tmp_path, {**ENVIRONMENT, "PATH": path})
        elif command not in images:
            ended = subprocess.run(
                command.split(),
                cwd=tmp_path,
                env={**ENVIRONMENT, "PATH": path},
                capture_output=True,
                text=True,
            )
            assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
            if "--json" in command:
                assert list(json.loads(ended.stdout)) == FIELDS
    of_command_line = list((tmp_path / "runs").iterdir())
    assert len(of_command_line) == 3

    (simulated, _) = _blocks("python")
    (tmp_path / "simulated.py").write_text(simulated.replace('"runs/first"', '"runs/simulated"'))
    said = subprocess.run(
        [sys.executable, "simulated.py"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "accuracy" in said.stdout and "model.safetensors" in said.stdout, said.stdout
    assert list((tmp_path / "runs" / "simulated").rglob("model.safetensors"))


def _serves(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Start a server, and end it as soon as it says where it is."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "http://" in line:
                return
        raise AssertionError((command, said))
    finally:
        process.terminate()
        process.communicate()


def test_the_tables_name_what_is_there() -> None:
    for field in (*FIELDS, "message"):
        assert re.search(rf"^\|.*`{field}`", PAGE, flags=re.MULTILINE), field


def test_the_python_writes_what_the_examples_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)

    def fake(shape: tuple[int, ...]) -> Any:
        def dataset(_root: str, *, train: bool, download: bool) -> Any:
            assert download
            labels = list(range(10)) * (2 if train else 1)
            images = random.integers(0, 256, (len(labels), *shape), dtype=np.uint8)
            return SimpleNamespace(data=images, targets=labels, classes=[f"class{k}" for k in range(10)])

        return dataset

    torchvision = SimpleNamespace(MNIST=fake((28, 28)), CIFAR10=fake((32, 32, 3)))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(datasets=torchvision))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", torchvision)
    monkeypatch.chdir(tmp_path)
    (_, code) = _blocks("python")
    exec(compile(code, "running-locally.md", "exec"), {})
    for name in EXAMPLES:
        for path in _paths(name):
            assert (tmp_path / "examples" / path).exists(), path
    with np.load("examples/data/cifar10/test.npz") as archive:
        assert (archive["images"].shape, archive["labels"].tolist()) == ((10, 32, 32, 3), list(range(10)))
    folders = sorted(Path("examples/data/cifar10-images/train").iterdir())
    assert [len(list(folder.glob("*.png"))) for folder in folders] == [2] * 10


def _paths(name: str) -> set[str]:
    documents = list(yaml.safe_load_all((ROOT / "examples" / f"{name}.yaml").read_text()))
    datasets = [dataset for document in documents for dataset in document["spec"].get("datasets", ())]
    datasets += documents[-1]["spec"]["aggregator"]["datasets"]
    return {dataset["config"]["path"] for dataset in datasets}
