"""Every dataset of the tables, from a tiny folder in the layout in which its authors publish it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from typing_extensions import override

from benchmarks.tables.datasets import ANGLES, DATASETS, balanced_indices, load
from benchmarks.tables.layouts import READERS

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def picture(array: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def test_mnist_as_one_archive(tmp_path: Path) -> None:
    images, labels = noise(3, 28, 28), np.array([1, 0, 2], np.uint8)
    np.savez(tmp_path / "mnist.npz", test_images=images, test_labels=labels)
    x, y = READERS["mnist"](tmp_path, "test")
    assert np.array_equal(x, images) and np.array_equal(y, labels)


@pytest.mark.parametrize(
    ("dataset", "folder"), [("mnist", "MNIST/raw"), ("mnist", "mnist"), ("fashion-mnist", "fashion-mnist")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files(tmp_path: Path, dataset: str, folder: str, packed: bool) -> None:
    root = tmp_path / folder
    root.mkdir(parents=True)
    images, labels = noise(2, 28, 28), np.array([9, 4])
    for name, array in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        content = idx(array)
        (root / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    x, y = READERS[dataset](tmp_path, "test")
    assert np.array_equal(x, images) and np.array_equal(y, labels)


def test_cifar10_as_jpegs_end_to_end(tmp_path: Path) -> None:
    files = []
    for value in (10, 200):
        stream = io.BytesIO()
        Image.fromarray(np.full((32, 32, 3), value, np.uint8)).save(stream, "JPEG")
        files.append(stream.getvalue())
    ends = np.cumsum([0, *map(len, files)])
    joined = np.frombuffer(b"".join(files), np.uint8)
    np.savez(tmp_path / "cifar10-jpeg.npz", train_jpeg=joined, train_offsets=ends, train_labels=[3, 5])
    x, y = READERS["cifar10"](tmp_path, "train")
    assert x.shape == (2, 32, 32, 3) and [int(image.mean()) for image in x] == [10, 200] and list(y) == [3, 5]


def test_cifar10_python_version(tmp_path: Path) -> None:
    root = tmp_path / "cifar-10-batches-py"
    root.mkdir()
    rows = noise(10, 3072)
    for number in range(5):
        part = {b"data": rows[2 * number : 2 * number + 2], b"labels": [number, number]}
        (root / f"data_batch_{number + 1}").write_bytes(pickle.dumps(part, protocol=2))
    x, y = READERS["cifar10"](tmp_path, "train")
    assert np.array_equal(x, rows.reshape(10, 3, 32, 32)) and list(y) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_cifar100_python_version(tmp_path: Path) -> None:
    root = tmp_path / "cifar-100-python"
    root.mkdir()
    rows = noise(2, 3072)
    content = {b"data": rows, b"fine_labels": [99, 7], b"coarse_labels": [0, 0]}
    (root / "test").write_bytes(pickle.dumps(content, protocol=2))
    x, y = READERS["cifar100"](tmp_path, "test")
    assert np.array_equal(x, rows.reshape(2, 3, 32, 32)) and list(y) == [99, 7]


class ForeignObject:
    @override
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_pickle_that_names_anything_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "cifar-100-python"
    root.mkdir()
    (root / "test").write_bytes(pickle.dumps(ForeignObject()))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        READERS["cifar100"](tmp_path, "test")
    assert capsys.readouterr().out == ""


def test_svhn(tmp_path: Path) -> None:
    images = noise(2, 32, 32, 3)
    (tmp_path / "svhn").mkdir()
    content = {"X": np.moveaxis(images, 0, 3), "y": np.array([[10], [1]])}
    savemat(tmp_path / "svhn" / "train_32x32.mat", content)
    x, y = READERS["svhn"](tmp_path, "train")
    assert np.array_equal(x, images) and list(y) == [0, 1]


def test_cinic10(tmp_path: Path) -> None:
    first, second = noise(32, 32, 3), noise(32, 32)
    picture(first, tmp_path / "CINIC-10" / "test" / "airplane" / "a.png")
    picture(second, tmp_path / "CINIC-10" / "test" / "bird" / "b.png")
    x, y = READERS["cinic10"](tmp_path, "test")
    assert np.array_equal(x[0], first) and np.array_equal(x[1][..., 0], second) and list(y) == [0, 1]


def test_tiny_imagenet(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for name, value in (("n02", 20), ("n01", 10)):
        picture(np.full((64, 64, 3), value, np.uint8), root / "train" / name / "images" / f"{name}_0.png")
    picture(np.full((64, 64, 3), 30, np.uint8), root / "val" / "images" / "val_0.png")
    (root / "val" / "val_annotations.txt").write_text("val_0.png\tn02\t0\t0\t62\t62\n")
    x, y = READERS["tiny-imagenet"](tmp_path, "train")
    assert x.shape == (2, 32, 32, 3) and [int(image.mean()) for image in x] == [10, 20] and list(y) == [0, 1]
    x, y = READERS["tiny-imagenet"](tmp_path, "test")
    assert int(x.mean()) == 30 and list(y) == [1]


def test_femnist(tmp_path: Path) -> None:
    root = tmp_path / "femnist" / "train"
    root.mkdir(parents=True)
    users = {"w1": {"x": [[0.0] * 784, [1.0] * 784], "y": [61, 0]}, "w2": {"x": [[0.5] * 784], "y": [3]}}
    (root / "all_data_0.json").write_text(json.dumps({"users": ["w1", "w2"], "user_data": users}))
    x, y = READERS["femnist"](tmp_path, "train")
    assert x.shape == (3, 28, 28) and [int(image.max()) for image in x] == [0, 255, 128]
    assert list(y) == [61, 0, 3]


def leaf(folder: Path, sizes: Mapping[str, int]) -> str:
    """A folder with a FEMNIST of users who have so many training images and one test image, a file for each user.

    The images of the user with number n are all of brightness n, and so is their class.
    """
    for split in ("train", "test"):
        root = folder / "femnist" / split
        root.mkdir(parents=True)
        for number, (name, size) in enumerate(sizes.items()):
            count = size if split == "train" else 1
            data = {name: {"x": [[number / 255] * 784] * count, "y": [number] * count}}
            (root / f"all_data_{number}.json").write_text(json.dumps({"users": [name], "user_data": data}))
    return str(folder)


def test_silos_are_the_users_who_have_enough_images(tmp_path: Path) -> None:
    folder = leaf(tmp_path, {"w0": 5, "few": 4, "w2": 6, "w3": 7})
    x, y = load("femnist", folder, "train", users=2, user=1)
    assert x.shape == (6, 28, 28) and set(x.ravel()) == {2} and list(y) == [2] * 6
    assert list(load("femnist", folder, "train", users=2)[1]) == [0] * 5 + [2] * 6
    assert list(load("femnist", folder, "test", users=2)[1]) == [0, 2]
    assert list(load("femnist", folder, "train", users=1, left=8)[1]) == [2] * 6 + [3] * 2, "of others"


def test_users_who_are_not_there_are_missed(tmp_path: Path) -> None:
    folder = leaf(tmp_path, {"w0": 5, "few": 4})
    with pytest.raises(
        ValueError, match="femnist: users with at least 5 training images: 1, and 2 are to be silos; put more"
    ):
        load("femnist", folder, "train", users=2, user=0)
    for file in (tmp_path / "femnist" / "test").iterdir():
        file.write_text(file.read_text().replace("w0", "w9"))
    with pytest.raises(ValueError, match="femnist/test: has no image of the training users"):
        load("femnist", folder, "test", users=1)


def test_every_dataset_has_a_reader() -> None:
    assert READERS.keys() == DATASETS.keys()


def test_a_missing_dataset_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="fashion-mnist, FashionMNIST/raw"):
        READERS["fashion-mnist"](tmp_path, "train")


def archive(folder: Path, samples: int = 40) -> str:
    """A folder with a MNIST of that many noisy images, of ten classes in turn."""
    images, labels = noise(samples, 28, 28), np.arange(samples) % 10
    np.savez(
        folder / "mnist.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels
    )
    return str(folder)


def test_a_subset_has_as_many_of_each_class() -> None:
    labels = np.array([0, 0, 0, 1, 1, 0, 1, 1])
    assert list(balanced_indices(labels, 4)) == [0, 1, 3, 4]


def test_normalised_images_have_channels_first_and_mean_zero(tmp_path: Path) -> None:
    x, _ = load("mnist", archive(tmp_path), "train", normalised=True)
    assert x.shape == (40, 1, 28, 28) and x.dtype == np.float32
    assert abs(float(x.mean())) < 0.05 and x.min() >= -1 and x.max() <= 1


def test_silos_see_images_at_their_own_angle_and_the_test_set_has_all(tmp_path: Path) -> None:
    folder = archive(tmp_path)
    division = {"silos": 2, "seed": 0, "scheme": "iid"}
    plain, _ = load("mnist", folder, "train")
    x, y = load("mnist", folder, "train", rotated="silo", division=division)
    upright = [index for index in range(40) if np.array_equal(x[index], plain[index])]
    assert len(upright) == 20 and len(y) == 40
    x, y = load("mnist", folder, "test", rotated="silo", division=division)
    assert len(x) == len(y) == 40 * len(ANGLES)
