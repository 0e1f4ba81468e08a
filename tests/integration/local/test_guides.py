"""The guides on one machine: their commands, and that what they show is what comes out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import fedsilo
from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.learning.models import build_model
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal


@runs("docs/guides/tables.md")
@pytest.mark.thorough
def test_tables(terminal: Terminal) -> None:
    _copy_example(terminal, "tables")
    make, validate, check, run, evaluate, export = terminal.commands
    terminal.type(make)
    assert "2 classes" in terminal.type(validate)
    findings, shown, by_class = blocks("docs/guides/tables.md", "text")
    assert terminal.type(check) == findings
    said = terminal.type(run)
    for line in shown.splitlines()[1:]:
        assert " ".join(line.split()) in " ".join(said.split()), said
    assert by_class in terminal.type(evaluate)
    terminal.type(export)
    assert (terminal.folder / "runs" / "tables" / "model.onnx").exists()


@runs("docs/guides/pretrained-images.md")
@pytest.mark.thorough
def test_pretrained_images(terminal: Terminal) -> None:
    page = "docs/guides/pretrained-images.md"
    manifest = _copy_example(terminal, "images") / "images.yaml"
    make, pretrain, digest, convert, validate, run, evaluate, export = terminal.commands
    terminal.type(make)
    terminal.type(pretrain)
    terminal.type(digest)
    assert "10 classes" in terminal.type(validate)
    shown, by_class = blocks(page, "text")
    said = terminal.type(run)
    _assert_alike(shown, said)
    assert "best    round " in said
    accuracy = {who: float(value) for who, value in re.findall(r"│ (\w+).* (\d+\.\d)%", said)}
    assert accuracy.pop("all") > max(accuracy.values())
    _assert_alike(by_class, terminal.type(evaluate))
    terminal.type(export)
    assert (terminal.folder / "runs" / "images" / "model.onnx").exists()
    again = fedsilo.simulate(manifest, terminal.folder / "runs" / "again", display=False)
    assert _model(again.directory) == _model(terminal.folder / "runs" / "images")

    _, _, frozen, local = (yaml.safe_load(block) for block in blocks(page, "yaml"))
    begun = load_file(terminal.folder / "runs" / "pretrained" / "model.safetensors")
    for option, part in ((frozen, "encoder.0.weight"), (local, "encoder.1.weight")):
        changed = _with_option(manifest, option)
        ended = fedsilo.simulate(changed, terminal.folder / "runs" / part, display=False)
        assert torch.equal(load_file(ended.model_path)[part], begun[part]), "no silo has sent it"

    import torchvision  # which takes seconds: only here

    torch.save(torchvision.models.resnet18().state_dict(), terminal.folder / "resnet18.pth")
    assert re.fullmatch("[0-9a-f]{64}\n", terminal.type(convert))
    data = DataSpec(dataset="scans", classes=10, input_shape=(3, 224, 224))
    network = build_model(ModelSpec(name="torchvision:resnet18"), data, seed=0)
    network.load_state_dict(load_file(terminal.folder / "runs" / "resnet18.safetensors"))


@runs("docs/guides/segmentation.md")
@pytest.mark.thorough
def test_segmentation(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/guides/segmentation.md"
    folder = _copy_example(terminal, "segmentation")
    make, export, validate, check, run, evaluate = terminal.commands
    terminal.type(make)
    terminal.type(export)
    assert "examples/segmentation/stroke_training.py" in terminal.type(validate)
    ready, by_class = blocks(page, "text")
    assert terminal.type(check) == ready
    terminal.type(run)
    _assert_alike(by_class, terminal.type(evaluate))
    directory = terminal.folder / "runs" / "segmentation"
    assert "epoch 2: loss 0." in (directory / "logs" / "north-trainer.log").read_text()
    monkeypatch.syspath_prepend(folder)
    again = fedsilo.simulate(folder / "segmentation.yaml", terminal.folder / "runs" / "again", display=False)
    assert _model(again.directory) == _model(directory)


def test_pages_show_what_is_in_the_examples() -> None:
    page, folder = "docs/guides/segmentation.md", ROOT / "examples" / "segmentation"
    assert blocks(page, "python") == [(folder / "stroke_training.py").read_text()]
    *_, south, _, job = yaml.safe_load_all((folder / "segmentation.yaml").read_text())
    shown_silo, shown_job = (yaml.safe_load(block) for block in blocks(page, "yaml"))
    for shown, document in ((shown_silo, south), (shown_job, job)):
        assert shown == {field: document["spec"][field] for field in shown}


def _copy_example(terminal: Terminal, name: str) -> Path:
    """A folder of examples whose commands write into it."""
    examples = terminal.folder / "examples"
    examples.unlink()
    shutil.copytree(ROOT / "examples" / name, examples / name, ignore=shutil.ignore_patterns("data"))
    return examples / name


def _assert_alike(shown: str, said: str, points: float = 6) -> None:
    """Each line that a page shows is among those of the output, with figures as near as another processor gives."""
    lines = [line.split() for line in said.splitlines()]
    for wanted in map(str.split, shown.splitlines()):
        assert any(_near(wanted, line, points) for line in lines), f"{wanted}\n{said}"


def _near(wanted: list[str], found: list[str], points: float) -> bool:
    if len(wanted) != len(found):
        return False
    return all(_is_near(one, other, points) for one, other in zip(wanted, found, strict=True))


def _is_near(wanted: str, found: str, points: float) -> bool:
    """Whether two figures agree: percentages up to so many points, and losses, which have four decimals, up to as many
    hundredths."""
    if wanted == found:
        return True
    if wanted.endswith("%") and found.endswith("%"):
        return abs(float(wanted[:-1]) - float(found[:-1])) <= points
    losses = all(re.fullmatch(r"\d+\.\d{4}", one) for one in (wanted, found))
    return losses and abs(float(wanted) - float(found)) <= points / 100


def _model(directory: Path) -> bytes:
    return (directory / "model.safetensors").read_bytes()


def _with_option(manifest: Path, option: Mapping[str, Any]) -> Path:
    """The manifest with one round, and what a page shows of the job's `spec` in place of what it has."""
    documents = list(yaml.safe_load_all(manifest.read_text()))
    spec = documents[-1]["spec"]
    spec["training"]["rounds"] = 1
    spec["model"] |= option["model"]
    spec |= {field: value for field, value in option.items() if field != "model"}
    changed = manifest.with_name("changed.yaml")
    changed.write_text(yaml.safe_dump_all(documents))
    return changed
