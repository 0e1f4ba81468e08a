"""Every loader yields the names of its classes, and names decide the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.data.schema import Schema
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import dataset

MODULE = __name__
NAMES = ("airplane", "bird", "cat")
SHADES = {"airplane": 10, "plane": 10, "bird": 20, "cat": 30}
"""The shade of grey that a class's image has, whatever label it gets."""


def job(classes: object = NAMES, *shape: int, rule: str | None = None) -> DataSpec:
    fields = {
        "dataset": "scans",
        "classes": classes,
        "inputShape": shape or (1, 2, 2),
        "onSchemaMismatch": rule,
    }
    return DataSpec.model_validate(fields)


def folders(root: Path, *names: str) -> DatasetSpec:
    for name in names:
        (root / name).mkdir()
        Image.new("L", (2, 2), SHADES.get(name.strip().lower(), 90)).save(root / name / "1.png")
    return dataset("imagefolder", path=".")


def npz(root: Path, **arrays: Any) -> DatasetSpec:
    content = {"images": np.array([[10.0], [20.0], [30.0]]), "labels": np.arange(3)}
    np.savez(root / "a.npz", **(content | arrays))
    return dataset("npz", path="a.npz")


def made_columns(names: object, features: int = 3) -> tuple[Any, ...]:
    return np.arange(features, dtype=float)[:, None], np.arange(features), names


def shades(spec: DatasetSpec, data: DataSpec, root: Path) -> dict[int, int]:
    """Label -> the shade of its image."""
    found = load(spec, data, root=root)
    return {int(label): int(image.max()) for label, image in zip(found.labels, found.features, strict=True)}


def test_a_folder_s_name_is_its_class_wherever_it_stands_among_the_others(tmp_path: Path) -> None:
    spec = folders(tmp_path, "bird", "cat")  # sorted, they would be 0 and 1
    assert shades(spec, job(), tmp_path) == {1: 20, 2: 30}
    assert shades(spec, job(("cat", "bird", "airplane")), tmp_path) == {0: 30, 1: 20}
    assert shades(spec, job(2), tmp_path) == {0: 20, 1: 30}


def test_a_misspelt_folder_is_refused_before_an_image_is_read(tmp_path: Path) -> None:
    spec = folders(tmp_path, "plane", "bird", "cat")
    (tmp_path / "bird" / "1.png").write_bytes(b"damaged")
    with pytest.raises(SchemaMismatch) as refused:
        load(spec, job(), root=tmp_path)
    assert str(refused.value) == (
        "dataset 'scans': class 'plane' is not a class of the job; did you mean 'airplane'? rename it, or set "
        "classAliases {plane: airplane} in the dataset"
    )
    assert refused.value.schema == Schema(classes=("bird", "cat", "plane"))


def test_the_institution_says_what_its_folder_is_called_elsewhere(tmp_path: Path) -> None:
    spec = folders(tmp_path, "plane", "bird", "cat")
    spec = spec.model_copy(update={"class_aliases": {"plane": "airplane"}})
    found = load(spec, job(), root=tmp_path)
    assert shades(spec, job(), tmp_path) == {0: 10, 1: 20, 2: 30}
    assert shades(spec, job(3), tmp_path) == {0: 10, 1: 20, 2: 30}
    assert found.schema == Schema(classes=NAMES, channels=1, value_range="0 to 1")


def test_case_is_mapped_where_the_job_says_so(tmp_path: Path) -> None:
    spec = folders(tmp_path, "Cat", "BIRD", " airplane ")
    assert shades(spec, job(rule="map"), tmp_path) == {0: 10, 1: 20, 2: 30}
    with pytest.raises(SchemaMismatch, match="class 'Cat' is not a class of the job; did you mean 'cat'"):
        load(spec, job(), root=tmp_path)


def test_what_a_silo_lacks_is_not_announced(tmp_path: Path) -> None:
    assert load(folders(tmp_path, "bird"), job(), root=tmp_path).schema.classes == NAMES


def test_names_in_an_archive(tmp_path: Path) -> None:
    turned = npz(tmp_path, classes=np.array(["cat", "airplane", "bird"]))
    assert load(turned, job(NAMES, 1, rule="map"), root=tmp_path).labels.tolist() == [2, 0, 1]
    with pytest.raises(
        SchemaMismatch, match="classes are in another order: cat, airplane and bird, not airplane, b"
    ):
        load(turned, job(NAMES, 1), root=tmp_path)
    by_number = load(turned, job(3, 1), root=tmp_path)
    assert (by_number.labels.tolist(), by_number.schema.classes) == ([0, 1, 2], ("cat", "airplane", "bird"))
    few = npz(tmp_path, classes=np.array(["airplane", "bird"]))
    with pytest.raises(DataInvalid, match=r"item 2: label 2 is not a class of the job .data.classes is 2."):
        load(few, job(NAMES, 1), root=tmp_path)


def test_an_array_of_something_else_is_none_of_names(tmp_path: Path) -> None:
    spec = npz(tmp_path, classes=np.arange(3))
    assert load(spec, job(3, 1), root=tmp_path).schema == Schema()
    with pytest.raises(
        SchemaMismatch, match="classes have no names in these data, and the job has airplane, bird, c"
    ):
        load(spec, job(NAMES, 1), root=tmp_path)
    named = dataset("npz", path="a.npz", classes="classes")
    with pytest.raises(
        DataInvalid, match=r"config.classes: 'classes' has dtype int64 and shape .3,.; write a list"
    ):
        load(named, job(3, 1), root=tmp_path)
    with pytest.raises(
        DataInvalid, match=r"config.classes: 'names' is not in the file; write a list of names"
    ):
        load(dataset("npz", path="a.npz", classes="names"), job(3, 1), root=tmp_path)
    twice = npz(tmp_path, classes=np.array(["cat", "cat"]))
    with pytest.raises(DataInvalid, match=r"config.classes: 'classes': 'cat' is there twice"):
        load(twice, job(3, 1), root=tmp_path)


def test_names_of_a_function(tmp_path: Path) -> None:
    spec = dataset(f"python:{MODULE}:made_columns", names=["Bird", "Cat", "Airplane"])
    assert load(spec, job(NAMES, 1, rule="map"), root=tmp_path).labels.tolist() == [1, 2, 0]
    assert (
        load(dataset(f"python:{MODULE}:made_columns", names=None), job(3, 1), root=tmp_path).schema.classes
        is None
    )
    for wrong, problem in ((["a", 3], "returned list for the names"), (["a", "a"], "'a' is there twice")):
        with pytest.raises(DataInvalid, match=problem):
            load(dataset(f"python:{MODULE}:made_columns", names=wrong), job(3, 1), root=tmp_path)


def test_aliases_for_data_without_names(tmp_path: Path) -> None:
    spec = npz(tmp_path).model_copy(update={"class_aliases": {"plane": "airplane"}})
    with pytest.raises(DataInvalid, match="classAliases: these data have no names of classes; remove it"):
        load(spec, job(3, 1), root=tmp_path)


def test_digits_are_called_what_they_are(tmp_path: Path) -> None:
    ten = tuple("0123456789")
    backwards = load(dataset("sklearn:digits"), job(ten[::-1], 1, 8, 8, rule="map"), root=tmp_path)
    forwards = load(dataset("sklearn:digits"), job(ten, 1, 8, 8), root=tmp_path)
    assert np.array_equal(backwards.labels, 9 - forwards.labels)


@pytest.mark.parametrize(
    ("values", "found"),
    [([0, 1], "0 to 1"), ([-0.5, 1], "-1 to 1"), ([0, 200], "0 to 255"), ([-2, 1], None), ([0, 300], None)],
)
def test_only_round_ranges_are_said_of_images(tmp_path: Path, values: list[float], found: str | None) -> None:
    images = np.array(values, dtype=float).reshape(2, 1, 1, 1)
    spec = npz(tmp_path, images=images, labels=np.arange(2))
    assert load(spec, job(2, 1, 1, 1), root=tmp_path).schema == Schema(channels=1, value_range=found)  # type: ignore[arg-type]
