"""MNIST and CIFAR-10, from arrays and from image files, through the examples' own manifests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from fedsilo.validation import load_and_validate
from tests.integration.local.runs import run
from tests.paths import ROOT, SHARED, needs_images

EXAMPLES = ("mnist", "cifar10", "cifar10-images")
SIZES = {"train": 2000, "test": 500}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_valid(name: str) -> None:
    federation = load_and_validate(ROOT / "examples" / f"{name}.yaml")
    assert federation.job.metadata.name == name


@needs_images
@pytest.mark.parametrize("name", EXAMPLES)
def test_two_rounds_of_the_example_on_a_subset(name: str, tmp_path: Path) -> None:
    unpack = {"mnist": _mnist, "cifar10": _cifar10, "cifar10-images": _cifar10_images}[name]
    for split, size in SIZES.items():
        unpack(tmp_path / "data" / name, split, size)
    manifest = tmp_path / f"{name}.yaml"
    manifest.write_text(_shortened((ROOT / "examples" / manifest.name).read_text()))
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert sum(silo["samples"] for silo in ended.document["silos"]) == pytest.approx(
        0.95 * SIZES["train"], abs=30
    )
    assert ended.document["metrics"]["loss"] < np.log(10) - (0.01 if name == "mnist" else 0)


def _shortened(text: str) -> str:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    documents[-1]["spec"]["training"]["rounds"] = 2
    return yaml.safe_dump_all(documents)


def _evenly(count: int, size: int) -> np.ndarray:
    return np.linspace(0, count - 1, size).astype(int)


def _mnist(directory: Path, split: str, size: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with np.load(SHARED / "data" / "mnist.npz") as archive:
        images, labels = archive[f"{split}_images"], archive[f"{split}_labels"]
    chosen = _evenly(len(labels), size)
    np.savez(directory / f"{split}.npz", images=images[chosen], labels=labels[chosen])


def _jpegs(split: str, size: int) -> list[tuple[bytes, int, str]]:
    with np.load(SHARED / "data" / "cifar10-jpeg.npz") as archive:
        stream, ends, labels, classes = (
            archive[key] for key in (f"{split}_jpeg", f"{split}_offsets", f"{split}_labels", "classes")
        )
    chosen = _evenly(len(labels), size)
    return [
        (stream[ends[i] : ends[i + 1]].tobytes(), int(labels[i]), str(classes[labels[i]])) for i in chosen
    ]


def _cifar10(directory: Path, split: str, size: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    files = _jpegs(split, size)
    images = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file, _, _ in files])
    np.savez(directory / f"{split}.npz", images=images, labels=np.array([label for _, label, _ in files]))


def _cifar10_images(directory: Path, split: str, size: int) -> None:
    for number, (file, _, name) in enumerate(_jpegs(split, size)):
        folder = directory / split / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05d}.jpg").write_bytes(file)
