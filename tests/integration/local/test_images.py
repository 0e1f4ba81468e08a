"""The examples' own manifests with image arrays and image files: digits in the formats of MNIST and CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_digits

from fedsilo.validation import load_manifest
from tests.integration.local.runs import run
from tests.paths import ROOT

EXAMPLES = ("mnist", "cifar10", "cifar10-images")
SPLITS = {"train": slice(0, 1400), "test": slice(1400, None)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_valid(name: str) -> None:
    federation = load_manifest(ROOT / "examples" / f"{name}.yaml")
    assert federation.job.metadata.name == name


@pytest.mark.parametrize(
    "name", [EXAMPLES[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in EXAMPLES[1:])]
)
def test_the_example_learns_in_four_rounds(name: str, tmp_path: Path) -> None:
    unpack = {"mnist": _mnist, "cifar10": _cifar10, "cifar10-images": _cifar10_images}[name]
    for split in SPLITS:
        unpack(tmp_path / "data" / name, split)
    manifest = tmp_path / f"{name}.yaml"
    manifest.write_text(_shorten_job((ROOT / "examples" / manifest.name).read_text()))
    ended = run(manifest, tmp_path / "run", "--in-process")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert sum(silo["samples"] for silo in ended.document["silos"]) == pytest.approx(0.95 * 1400, abs=30)
    assert ended.document["metrics"]["loss"] < np.log(10) - (0.01 if name == "mnist" else 0), ended.history


def _shorten_job(text: str) -> str:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    documents[-1]["spec"]["training"]["rounds"] = 4
    return yaml.safe_dump_all(documents)


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Grey images of 8 by 8 pixels, 0 to 255, and their labels."""
    digits = load_digits()
    return (digits.images * 255 / 16).astype(np.uint8), digits.target


def _enlarged_images(split: str, size: int) -> Iterator[tuple[Image.Image, int]]:
    images, labels = _digits()
    for image, label in zip(images[SPLITS[split]], labels[SPLITS[split]], strict=True):
        yield Image.fromarray(image).resize((size, size)), int(label)


def _save(path: Path, items: Iterator[tuple[Image.Image, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images, labels = zip(*((np.asarray(image), label) for image, label in items), strict=True)
    np.savez(path, images=np.stack(images), labels=np.array(labels))


def _mnist(directory: Path, split: str) -> None:
    _save(directory / f"{split}.npz", _enlarged_images(split, 28))


def _cifar10(directory: Path, split: str) -> None:
    coloured = ((image.convert("RGB"), label) for image, label in _enlarged_images(split, 32))
    _save(directory / f"{split}.npz", coloured)


def _cifar10_images(directory: Path, split: str) -> None:
    for number, (image, label) in enumerate(_enlarged_images(split, 32)):
        folder = directory / split / f"digit{label}"
        folder.mkdir(parents=True, exist_ok=True)
        image.convert("RGB").save(folder / f"{number:05d}.jpg")
