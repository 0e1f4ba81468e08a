"""Each loader on data as people have them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from fedsilo.data.loaders import Arrays, load
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset, part

MODULE = __name__


def save_images(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    np.savez(path, images=images, labels=labels)


def test_digits_are_split_without_overlap_by_the_seed(tmp_path: Path) -> None:
    def digits(split: str, seed: int = 0) -> Arrays:
        return load(dataset("sklearn:digits", split=split, seed=seed), data(1, 8, 8), root=tmp_path)

    train, test, everything = digits("train"), digits("test"), digits("all")
    assert (len(train), len(test), len(everything)) == (1438, 359, 1797)
    assert train.features.dtype == np.float32
    assert train.features.shape == (1438, 1, 8, 8)
    assert isinstance(everything.features, np.ndarray)
    assert (everything.features.min(), everything.features.max()) == (0.0, 1.0)
    rejoined = np.concatenate([test.features, train.features]).reshape(1797, -1)
    assert np.array_equal(
        np.sort(rejoined.sum(axis=1)), np.sort(everything.features.reshape(1797, -1).sum(axis=1))
    )
    assert not np.array_equal(test.labels, digits("test", seed=1).labels)


def test_digits_are_what_scikit_learn_loads(tmp_path: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    found = load(dataset("sklearn:digits", split="all"), data(1, 8, 8), root=tmp_path)
    assert isinstance(found.features, np.ndarray)
    assert np.array_equal(found.features.reshape(-1, 64), (images / 16).astype(np.float32))
    assert np.array_equal(found.labels, labels)


def test_a_partition_divides_the_loaded_samples(tmp_path: Path) -> None:
    def silo(index: int) -> Arrays:
        return load(dataset("sklearn:digits", part("iid", 3, index=index)), data(1, 8, 8), root=tmp_path)

    whole = load(dataset("sklearn:digits"), data(1, 8, 8), root=tmp_path)
    parts = [silo(index) for index in range(3)]
    assert sum(map(len, parts)) == len(whole)
    order = np.random.RandomState(0).permutation(len(whole))
    assert np.array_equal(np.concatenate([p.features for p in parts]), whole.features[order])
    assert np.array_equal(np.concatenate([p.labels for p in parts]), whole.labels[order])


@pytest.mark.parametrize(
    ("stored", "job"),
    [((6, 5, 4), (1, 5, 4)), ((6, 5, 4, 3), (3, 5, 4)), ((6, 3, 5, 4), (3, 5, 4)), ((6, 7), (7,))],
)
def test_npz_images_get_their_channels_first_and_stay_bytes(
    tmp_path: Path, stored: tuple[int, ...], job: tuple[int, ...]
) -> None:
    images = np.random.RandomState(0).randint(0, 256, stored).astype(np.uint8)
    save_images(tmp_path / "a.npz", images, np.arange(6, dtype=np.uint8))
    arrays = load(dataset("npz", path="a.npz"), data(*job), root=tmp_path)
    assert arrays.features.dtype == np.uint8
    assert arrays.features.shape == (6, *job)
    assert isinstance(arrays.features, np.ndarray)
    assert arrays.features.flags.c_contiguous
    assert arrays.labels.dtype == np.int64
    if stored[1:] == (5, 4, 3):
        assert np.array_equal(arrays.features[2, 1], images[2, :, :, 1])


def test_npz_with_absolute_path_other_names_and_doubles(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=np.array([0.0, 1.0, 2.0, 1.0]))
    spec = dataset("npz", path=str(tmp_path / "a.npz"), features="x", labels="y")
    arrays = load(spec, data(4, classes=3), root=Path("elsewhere"))
    assert arrays.features.dtype == np.float32
    assert arrays.labels.tolist() == [0, 1, 2, 1]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Real images as people have them: grey, 0 to 255; and their labels."""
    found = load_digits()
    return (found.images * 255 / 16).astype(np.uint8), found.target


def test_one_archive_with_arrays_of_several_splits(
    tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]
) -> None:
    images, labels = digits
    np.savez(
        tmp_path / "digits.npz",
        train_images=images[:10],
        train_labels=labels[:10],
        test_images=images,
        test_labels=labels,
    )
    spec = dataset(
        "npz",
        part("dirichlet", 4, beta=0.5, index=1),
        path="digits.npz",
        features="test_images",
        labels="test_labels",
    )
    whole = load(spec.model_copy(update={"partition": None}), data(1, 8, 8), root=tmp_path)
    assert whole.features.shape == (1797, 1, 8, 8)
    assert np.bincount(whole.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert 0 < len(load(spec, data(1, 8, 8), root=tmp_path)) < 1797


def test_folders_of_image_files(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for number in range(300):
        folder = tmp_path / "digits" / names[labels[number]]
        folder.mkdir(parents=True, exist_ok=True)
        coloured = Image.fromarray(images[number]).resize((32, 32)).convert("RGB")
        coloured.save(folder / f"{number:05d}.jpg")
    arrays = load(dataset("imagefolder", path="digits"), data(3, 32, 32), root=tmp_path)
    assert arrays.features.shape == (300, 3, 32, 32)
    assert arrays.features.dtype == np.uint8
    order = np.argsort(names)
    assert np.array_equal(
        np.bincount(arrays.labels, minlength=10), np.bincount(labels[:300], minlength=10)[order]
    )
    first = min((tmp_path / "digits" / sorted(names)[0]).iterdir())
    assert np.array_equal(arrays.features[0], np.asarray(Image.open(first)).transpose(2, 0, 1))
    small = load(dataset("imagefolder", path="digits", size=[8, 12]), data(1, 8, 12), root=tmp_path)
    assert small.features.shape == (300, 1, 8, 12)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


def test_torchvision_reads_both_splits(tmp_path: Path) -> None:
    pixels = np.random.RandomState(0).randint(0, 256, (5, 28, 28)).astype(np.uint8)
    for prefix, count in (("train", 5), ("t10k", 2)):
        write_idx(tmp_path / "MNIST" / "raw" / f"{prefix}-images-idx3-ubyte", pixels[:count])
        write_idx(
            tmp_path / "MNIST" / "raw" / f"{prefix}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8)
        )
    train = load(dataset("torchvision:MNIST", path="."), data(1, 28, 28), root=tmp_path)
    test = load(dataset("torchvision:MNIST", path=".", split="test"), data(1, 28, 28), root=tmp_path)
    assert np.array_equal(train.features[:, 0], pixels)
    assert test.labels.tolist() == [0, 1]


def test_torchvision_reads_datasets_without_arrays_item_by_item(tmp_path: Path) -> None:
    for label, grey in (("0", 10), ("1", 200)):
        folder = tmp_path / "gtsrb" / "GTSRB" / "Training" / f"0000{label}"
        folder.mkdir(parents=True)
        Image.new("RGB", (6, 4), (grey, 0, 0)).save(folder / "00000_00000.ppm")
    arrays = load(dataset("torchvision:GTSRB", path="."), data(3, 4, 6), root=tmp_path)
    assert arrays.features[:, 0, 0, 0].tolist() == [10, 200]
    assert arrays.labels.tolist() == [0, 1]


def good_arrays(count: int = 4) -> tuple[Any, Any]:
    return torch.zeros(count, 2), [0, 1] * (count // 2)


def raising() -> tuple[Any, Any]:
    raise KeyError("no table of patients")


def returning_one() -> Any:
    return np.zeros((2, 2))


def test_python_function_gets_the_config_as_keywords(tmp_path: Path) -> None:
    arrays = load(dataset(f"python:{MODULE}:good_arrays", count=6), data(2), root=tmp_path)
    assert arrays.features.shape == (6, 2)
    assert arrays.labels.tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("reference", "config", "message"),
    [
        (f"{MODULE}:absent", {}, r"absent': cannot be imported: .*; install it"),
        ("no.such.module:load", {}, r"no.such.module:load': cannot be imported: No module named 'no'"),
        (f"{MODULE}:raising", {}, r"raised KeyError: 'no table of patients'; correct"),
        (f"{MODULE}:good_arrays", {"rows": 1}, r"raised TypeError: .*'rows'"),
        (f"{MODULE}:returning_one", {}, r"returned ndarray; return a tuple .features, labels."),
    ],
)
def test_python_function_that_does_not_work(
    tmp_path: Path, reference: str, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataInvalid, match=f"^dataset 'scans': loader: '?python:.*{message}"):
        load(dataset(f"python:{reference}", **config), data(2), root=tmp_path)


def test_volumes_get_their_channels_first(tmp_path: Path) -> None:
    scans = np.random.RandomState(0).rand(4, 6, 5, 3, 2).astype(np.float32)
    save_images(tmp_path / "a.npz", scans, np.arange(4) % 2)
    arrays = load(dataset("npz", path="a.npz"), data(2, 6, 5, 3, classes=2), root=tmp_path)
    assert arrays.features.shape == (4, 2, 6, 5, 3)
    assert np.array_equal(arrays.features[1, 1], scans[1, ..., 1])
    save_images(tmp_path / "a.npz", scans[..., 0], np.arange(4) % 2)
    grey = load(dataset("npz", path="a.npz"), data(1, 6, 5, 3, classes=2), root=tmp_path)
    assert np.array_equal(grey.features[:, 0], scans[..., 0])


def test_images_of_16_bits_become_numbers_from_0_to_1(tmp_path: Path) -> None:
    pixels = np.random.RandomState(0).randint(0, 65536, (4, 6, 5)).astype(np.uint16)
    save_images(tmp_path / "a.npz", pixels, np.arange(4) % 2)
    for item, name in enumerate(("a/0.png", "b/1.png", "a/2.tif", "b/3.tif")):
        (tmp_path / "scans" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[item]).save(tmp_path / "scans" / name)
    job, expected = data(1, 6, 5, classes=2), pixels[:, np.newaxis] / np.float32(65535)
    for in_memory in (True, False):
        archive = load(dataset("npz", path="a.npz", inMemory=in_memory), job, root=tmp_path)
        assert archive.features.dtype == np.float32
        assert np.array_equal(archive.features, expected)
        folder = dataset("imagefolder", path="scans", bits=16, inMemory=in_memory)
        assert np.array_equal(load(folder, job, root=tmp_path).features, expected[[0, 2, 1, 3]])
    half = load(
        dataset("imagefolder", path="scans", bits=16, size=[3, 3]), data(1, 3, 3, classes=2), root=tmp_path
    )
    assert half.features.shape == (4, 1, 3, 3)
    assert np.asarray(half.features).max() <= 1
