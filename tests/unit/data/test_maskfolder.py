"""Loader of images with masks: pixels get the job's classes by name, and what is wrong with a file is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.faults import ABSENT_VALUE
from fedsilo.api.job import LearningTaskSpec
from fedsilo.data.catalogue import check_dataset
from fedsilo.data.loaders import Arrays, load
from fedsilo.data.sources import LazyFeatures
from fedsilo.errors import DataInvalid
from fedsilo.tasks.places import UNSCORED_TARGET
from tests.unit.data.specs import data, dataset

MASKS = np.array([[[0, 1, 2], [2, 1, 0]], [[1, 1, 1], [0, 0, 2]]], np.uint8)
"""Two masks of three classes, three pixels wide and two high."""

JOB = data(3, 2, 3, classes=3)
NAMED_CLASSES_SPEC = DataSpec.model_validate(
    {"dataset": "scans", "classes": ["paper", "stroke", "margin"], "inputShape": [3, 2, 3]}
)
VALUES = {"stroke": 255, "margin": 128, "paper": 0}


def store_images(root: Path, masks: np.ndarray = MASKS, mode: str = "L") -> DatasetSpec:
    """Images as JPEG, their masks as PNG, the second pair in a folder of its own."""
    for number, mask in enumerate(masks):
        name = f"{number}" if number == 0 else f"more/{number}"
        for folder in ("images", "masks"):
            (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", mask.shape[::-1], (40 * number, 9, 9)).save(root / "images" / f"{name}.jpg")
        kept = Image.fromarray(mask)
        if mode == "P":
            kept.putpalette([40, 40, 40, 200, 0, 0, 0, 200, 0])
        kept.save(root / "masks" / f"{name}.png")
    return dataset("maskfolder", path=".")


def with_config(spec: DatasetSpec, **config: Any) -> DatasetSpec:
    return spec.model_copy(update={"config": {**spec.config, **config}})


def read(spec: DatasetSpec, job: DataSpec, root: Path, **task: Any) -> Arrays:
    return load(spec, job, root=root, task=LearningTaskSpec(name="segmentation", config=task))


def refusal(spec: DatasetSpec, job: DataSpec, root: Path, task: str = "segmentation") -> str:
    with pytest.raises(DataInvalid) as caught:
        load(spec, job, root=root, task=LearningTaskSpec(name=task))
    message = str(caught.value)
    assert message.startswith("dataset 'scans': ") and "\n" not in message
    return message.removeprefix("dataset 'scans': ")


@pytest.mark.parametrize("mode", ["L", "P"])
def test_values_are_classes_and_images_are_those_of_the_same_name(tmp_path: Path, mode: str) -> None:
    spec = store_images(tmp_path, mode=mode)
    (tmp_path / "masks" / ".DS_Store").write_bytes(b"hidden")
    held = read(with_config(spec, inMemory=True), JOB, tmp_path)
    assert np.array_equal(held.labels, MASKS)
    assert [round(float(image[0].mean()), -1) for image in held.features] == [0, 40]
    lazy = read(with_config(spec, inMemory=False), JOB, tmp_path)
    assert isinstance(lazy.features, LazyFeatures)
    assert np.array_equal(lazy.features, held.features) and np.array_equal(lazy.labels, MASKS)


def test_a_mask_of_one_bit_has_two_classes(tmp_path: Path) -> None:
    spec = store_images(tmp_path)
    for file in (tmp_path / "masks").rglob("*.png"):
        bits = np.asarray(Image.open(file)) == 1
        Image.fromarray(bits).save(file)
    assert np.array_equal(read(spec, data(3, 2, 3, classes=2), tmp_path).labels, MASKS == 1)


def test_classes_go_by_name_whatever_their_values(tmp_path: Path) -> None:
    spec = with_config(store_images(tmp_path, np.array([0, 255, 128], np.uint8)[MASKS]), classes=VALUES)
    found = read(spec, NAMED_CLASSES_SPEC, tmp_path)
    assert np.array_equal(found.labels, MASKS)
    assert found.schema.classes == ("paper", "stroke", "margin")


def test_an_alias_makes_two_values_one_class(tmp_path: Path) -> None:
    spec = with_config(store_images(tmp_path), classes={"paper": 0, "line": 1, "curve": 2})
    spec = spec.model_copy(update={"class_aliases": {"line": "stroke", "curve": "stroke"}})
    assert np.array_equal(read(spec, NAMED_CLASSES_SPEC, tmp_path).labels, np.minimum(MASKS, 1))


def test_a_value_that_says_nothing_stays_so_unless_it_is_named(tmp_path: Path) -> None:
    masks = MASKS.copy()
    masks[0, 0, 0] = 255
    spec = store_images(tmp_path, masks)
    assert read(spec, JOB, tmp_path, ignore=255).labels[0, 0].tolist() == [UNSCORED_TARGET, 1, 2]
    values = {"paper": 0, "stroke": 1, "margin": 2}
    named = read(with_config(spec, classes=values), NAMED_CLASSES_SPEC, tmp_path, ignore=255)
    assert named.labels[0, 0].tolist() == [UNSCORED_TARGET, 1, 2]
    spec = store_images(tmp_path, np.where(masks == 2, 255, masks))
    values["margin"] = 255
    named = read(with_config(spec, classes=values), NAMED_CLASSES_SPEC, tmp_path, ignore=255)
    assert named.labels[0, 0].tolist() == [2, 1, 2]


def test_a_mask_that_is_resized_has_no_other_classes_than_before(tmp_path: Path) -> None:
    spec = with_config(
        store_images(tmp_path, np.array([0, 255, 128], np.uint8)[MASKS]), classes=VALUES, size=[4, 6]
    )
    job = NAMED_CLASSES_SPEC.model_copy(update={"input_shape": (3, 4, 6)})
    found = read(spec, job, tmp_path)
    assert np.array_equal(found.labels, MASKS.repeat(2, axis=1).repeat(2, axis=2))


def replace_image(root: Path, name: str, image: Image.Image) -> None:
    (root / name).unlink(missing_ok=True)
    image.save(root / name)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    spec = store_images(tmp_path)
    mask = Image.fromarray(MASKS[0])
    replace_image(tmp_path, "masks/0.png", mask.resize((3, 4)))
    assert refusal(spec, JOB, tmp_path) == (
        "'masks/0.png' is 3 pixels wide and 4 high, and its image 'images/0.jpg' 3 and 2; give the mask the size of"
        " its image, each as its EXIF orientation turns it"
    )
    replace_image(tmp_path, "masks/0.png", mask.convert("RGB"))
    assert refusal(spec, JOB, tmp_path) == (
        "'masks/0.png' is no mask of one class for each pixel (mode RGB); write it as a PNG with a palette, or in"
        " grey of 8 bits, whose values stand for classes"
    )
    (tmp_path / "masks/0.png").write_bytes(b"not an image")
    assert "'masks/0.png' cannot be decoded as an image" in refusal(spec, JOB, tmp_path)
    replace_image(tmp_path, "masks/0.png", mask)
    mask.save(tmp_path / "masks" / "0.tif")
    assert refusal(spec, JOB, tmp_path) == "'masks/0' is there as '0.png' and as '0.tif'; remove one of them"
    (tmp_path / "masks" / "0.tif").rename(tmp_path / "masks" / "7.tif")
    assert refusal(spec, JOB, tmp_path) == (
        "'masks/7.tif' is the mask of no image; name it like its image in 'images', or remove it"
    )
    (tmp_path / "masks" / "7.tif").unlink()
    (tmp_path / "masks" / "more" / "1.png").unlink()
    assert refusal(spec, JOB, tmp_path) == (
        "'images/more/1.jpg' has no mask; add 'masks/more/1.png', or remove the image"
    )
    (tmp_path / "masks" / "0.png").unlink()
    assert refusal(spec, JOB, tmp_path) == "folder 'masks' is empty; add masks, or correct config.path"
    (tmp_path / "masks" / "more").rmdir()
    (tmp_path / "masks").rmdir()
    assert refusal(spec, JOB, tmp_path).endswith(
        "holds no folder 'masks'; mount the data there, or correct the path"
    )


def test_a_value_that_is_no_class(tmp_path: Path) -> None:
    masks = MASKS.copy()
    masks[1, 1, 2] = 7
    spec = store_images(tmp_path, masks)
    assert refusal(spec, JOB, tmp_path) == (
        "'masks/more/1.png' has value 7 at row 1, column 2, which is no class; number classes from 0 to 2, or give the"
        " value of each in config.classes, or set spec.task.config.ignore where it says nothing"
    )
    named = with_config(spec, classes={"paper": 0, "stroke": 1, "margin": 2})
    assert refusal(named, NAMED_CLASSES_SPEC, tmp_path) == (
        "'masks/more/1.png' has value 7 at row 1, column 2, which is no class; correct the mask, or config.classes"
        " (paper 0, stroke 1, margin 2), or set spec.task.config.ignore where it says nothing"
    )


def test_images_of_another_size_than_the_jobs_are_found_before_any_is_decoded(tmp_path: Path) -> None:
    spec = with_config(store_images(tmp_path), inMemory=False)
    assert refusal(spec, data(3, 2, 4, classes=3), tmp_path).startswith(
        "'images/0.jpg' has shape [3, 2, 3], but data.inputShape of the job is [3, 2, 4]; set config.size to [2, 4]"
    )


def test_names_that_are_not_the_jobs(tmp_path: Path) -> None:
    spec = store_images(tmp_path)
    assert "classes have no names in these data" in refusal(spec, NAMED_CLASSES_SPEC, tmp_path)
    wrong = with_config(spec, classes={"paper": 0, "strok": 1, "margin": 2})
    assert "did you mean 'stroke'?" in refusal(wrong, NAMED_CLASSES_SPEC, tmp_path)
    assert check_dataset(with_config(spec, classes={"paper": 0, "stroke": 0})) == [
        (
            "config.classes",
            ABSENT_VALUE,
            "has 0 for 'paper' and for 'stroke'",
            "give each class a value of its own",
        )
    ]


def test_masks_for_another_task(tmp_path: Path) -> None:
    assert refusal(store_images(tmp_path), JOB, tmp_path, "classification") == (
        "loader: maskfolder gives a class for each pixel, and task classification learns one class for each example;"
        " set spec.task.name to segmentation, or use another loader"
    )
