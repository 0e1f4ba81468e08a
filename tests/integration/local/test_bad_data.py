"""What a person or an institution got wrong is said at once, with the names that are needed to mend it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.integration.local.manifest import silo, silos, write
from tests.integration.local.runs import living, run

Dataset = Callable[[Path], dict[str, Any]]


def _npz(directory: Path, **changes: np.ndarray) -> dict[str, Any]:
    random = np.random.default_rng(0)
    arrays = {"images": random.random((40, 8, 8), dtype=np.float32), "labels": np.arange(40) % 10, **changes}
    np.savez(directory / "digits.npz", **arrays)
    return {"loader": "npz", "config": {"path": "digits.npz"}}


def _folders(directory: Path) -> dict[str, Any]:
    for label in range(10):
        folder = directory / "scans" / f"class{label}"
        folder.mkdir(parents=True)
        Image.new("L", (8, 8), label).save(folder / "1.png")
    return {"loader": "imagefolder", "config": {"path": "scans"}}


def _missing(_: Path) -> dict[str, Any]:
    return {"loader": "npz", "config": {"path": "nowhere/digits.npz"}}


def _empty_class(directory: Path) -> dict[str, Any]:
    dataset = _folders(directory)
    (directory / "scans" / "class7" / "1.png").unlink()
    return dataset


def _no_image(directory: Path) -> dict[str, Any]:
    dataset = _folders(directory)
    (directory / "scans" / "class3" / "1.png").write_text("not an image")
    return dataset


def _label_out_of_range(directory: Path) -> dict[str, Any]:
    labels = np.arange(40) % 10
    labels[12] = 10
    return _npz(directory, labels=labels)


def _not_a_number(directory: Path) -> dict[str, Any]:
    images = np.zeros((40, 8, 8), dtype=np.float32)
    images[31, 2, 2] = np.nan
    return _npz(directory, images=images)


def _wrong_shape(directory: Path) -> dict[str, Any]:
    return _npz(directory, images=np.zeros((40, 9, 9), dtype=np.float32))


@pytest.mark.parametrize(
    ("dataset", "found"),
    [
        (_missing, "nowhere/digits.npz' is not a file; mount the data there or correct the path"),
        (_empty_class, "class folder 'class7' is empty; add images or correct config.path"),
        (_no_image, "'class3/1.png' cannot be decoded as an image"),
        (_label_out_of_range, "item 12: label 10 is not a class of the job (data.classes is 10)"),
        (_not_a_number, "item 31: features contain nan; remove or mend the item"),
        (_wrong_shape, "items have shape [9, 9], but data.inputShape of the job is [1, 8, 8]"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_a_silos_data(dataset: Dataset, found: str, tmp_path: Path) -> None:
    manifest = write(tmp_path / "digits.yaml", [silo("north", dataset(tmp_path))])
    ended = run(manifest, tmp_path / "run")
    document = ended.document
    assert (ended.code, document["phase"], document["reason"]) == (4, "Failed", "DataInvalid")
    assert document["message"].startswith("silo silo-north/north: ")
    assert "'digits'" in document["message"]
    assert found in document["message"]
    assert len(document["message"].splitlines()) == 1
    assert (document["model"], document["rounds"]) == (None, 0)
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert living(tmp_path) == {}


def test_data_that_were_mended_let_the_run_go_on(tmp_path: Path) -> None:
    members = [silo("north", _missing(tmp_path)), *silos("east")]
    manifest = write(tmp_path / "digits.yaml", members, training={"rounds": 1})
    assert run(manifest, tmp_path / "run").code == 4
    (tmp_path / "nowhere").mkdir()
    _npz(tmp_path / "nowhere")
    ended = run(manifest, tmp_path / "run", "--resume")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert ended.history[0]["failed"] == {}


def test_the_aggregators_test_set(tmp_path: Path) -> None:
    test = {"name": "test", **_missing(tmp_path)}
    manifest = write(tmp_path / "digits.yaml", silos("north"), aggregator={"datasets": [test]})
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (3, "DataInvalid")
    assert "nowhere/digits.npz" in ended.document["message"]
    assert living(tmp_path) == {}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"method": {"name": "fedavgg"}},
            'spec.method.name: "fedavgg": is not a known method; did you mean fedavg?',
        ),
        ({"training": {"rounds": 0}}, "spec.training.rounds: 0: "),
        (
            {"model": {"name": "lenet", "config": {}}},
            "spec.data.inputShape: [1, 8, 8]: is too small for lenet",
        ),
        ({"participation": {"minSilos": 2}}, "spec.participation.minSilos: 2: "),
    ],
)
def test_a_manifest(spec: dict[str, Any], message: str, tmp_path: Path) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north"), **spec)
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert all(line.startswith("fedsilo: ") for line in ended.err.splitlines())
    assert list(tmp_path.iterdir()) == [manifest]


def test_no_manifest(tmp_path: Path) -> None:
    ended = run(tmp_path / "nothing.yaml", tmp_path / "run")
    assert (ended.code, ended.out) == (2, "")
    assert "nothing.yaml" in ended.err
    assert list(tmp_path.iterdir()) == []
