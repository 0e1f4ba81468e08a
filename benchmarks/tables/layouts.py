"""Datasets as their authors publish them, read from a local folder; nothing is fetched, no foreign code unpickled."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from typing_extensions import override

RawImages = tuple[np.ndarray, np.ndarray]
"""Images, uint8, and their classes."""

SAFE_CLASSES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
"""All that the pickles of CIFAR need."""


def first_found(folder: Path, names: Sequence[str]) -> Path:
    """The first of these that is there.

    :raises FileNotFoundError: with all of them.
    """
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"none of {', '.join(names)} is there")


def mnist(folder: Path, split: str) -> RawImages:
    """`mnist.npz` with `train_images` and so on, or the files of idx format."""
    if (folder / "mnist.npz").is_file():
        with np.load(folder / "mnist.npz") as arrays:
            return arrays[f"{split}_images"], arrays[f"{split}_labels"]
    return _idx_pair(first_found(folder, ["mnist", "MNIST/raw"]), split)


def fashion_mnist(folder: Path, split: str) -> RawImages:
    """The files of idx format."""
    return _idx_pair(first_found(folder, ["fashion-mnist", "FashionMNIST/raw"]), split)


def cifar10(folder: Path, split: str) -> RawImages:
    """`cifar10-jpeg.npz` with JPEG files end to end, or the Python version."""
    if (folder / "cifar10-jpeg.npz").is_file():
        with np.load(folder / "cifar10-jpeg.npz") as arrays:
            stream, ends = arrays[f"{split}_jpeg"], arrays[f"{split}_offsets"]
            files = [stream[start:end].tobytes() for start, end in pairwise(ends)]
            images = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
            return images, arrays[f"{split}_labels"]
    root = first_found(folder, ["cifar-10-batches-py"])
    names = [f"data_batch_{number}" for number in range(1, 6)] if split == "train" else ["test_batch"]
    batches = [_cifar(root / name, b"labels") for name in names]
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def write_jpeg(path: Path, splits: Mapping[str, RawImages], quality: int = 95) -> None:
    """Write images as JPEG files end to end, as `cifar10` reads them; all of them have the same tables, which compress.

    :param splits: `train` and `test`; images (n, height, width, 3) or (n, 3, height, width).
    """
    arrays: dict[str, np.ndarray] = {}
    for split, (images, labels) in splits.items():
        files = []
        for image in images:
            channels_last = np.moveaxis(image, 0, 2) if image.shape[0] == 3 else image
            with io.BytesIO() as file:
                Image.fromarray(channels_last).save(file, "JPEG", quality=quality, subsampling=0)
                files.append(file.getvalue())
        arrays[f"{split}_jpeg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, files)])
        arrays[f"{split}_labels"] = np.asarray(labels)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def cifar100(folder: Path, split: str) -> RawImages:
    """The Python version, with fine labels."""
    return _cifar(first_found(folder, ["cifar-100-python"]) / split, b"fine_labels")


def svhn(folder: Path, split: str) -> RawImages:
    """Images and labels of SVHN's cropped digits, `train_32x32.mat`; the class of zeros is written as 10 there."""
    from scipy.io import loadmat

    found = loadmat(first_found(folder, [f"svhn/{split}_32x32.mat", f"SVHN/{split}_32x32.mat"]))
    return np.moveaxis(found["X"], 3, 0), found["y"].ravel().astype(np.int64) % 10


def cinic10(folder: Path, split: str) -> RawImages:
    """A folder per split and class."""
    root = first_found(folder, ["cinic-10", "CINIC-10"]) / split
    return _folders(sorted(root.iterdir()))


def tiny_imagenet(folder: Path, split: str) -> RawImages:
    """`tiny-imagenet-200`, resized to 32 x 32; its `val` is the test set, since `test` has no labels."""
    root = first_found(folder, ["tiny-imagenet-200"])
    classes = sorted(path.name for path in (root / "train").iterdir())
    if split == "train":
        return _folders([root / "train" / name / "images" for name in classes], 32)
    lines = (root / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split("\t") for line in lines]
    images = [_image(root / "val" / "images" / word[0], 32) for word in words]
    return np.stack(images), np.array([classes.index(word[1]) for word in words])


def femnist(folder: Path, split: str) -> RawImages:
    """The images of all users."""
    return join_parts([raw for _, raw in femnist_users(folder, split)])


def femnist_users(folder: Path, split: str) -> Iterator[tuple[str, RawImages]]:
    """Users by name, out of LEAF's JSON files: 28 x 28 images with black on white as numbers from 0 to 1.

    A file is read when its first user is asked for: all files are some gigabytes.
    """
    root = first_found(folder, ["femnist"]) / split
    for file in sorted(root.glob("*.json")):
        found = json.loads(file.read_bytes())
        for name in found["users"]:
            user = found["user_data"][name]
            images = np.asarray(user["x"], np.float64).reshape(-1, 28, 28)
            yield name, (np.round(images * 255).astype(np.uint8), np.asarray(user["y"], np.int64))


def join_parts(parts: Sequence[RawImages]) -> RawImages:
    """One after the other."""
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _idx_pair(root: Path, split: str) -> RawImages:
    stem = {"train": "train", "test": "t10k"}[split]
    return _idx(root, f"{stem}-images-idx3-ubyte"), _idx(root, f"{stem}-labels-idx1-ubyte")


def _idx(root: Path, name: str) -> np.ndarray:
    """Array in one idx file, whose bytes are two zeros, the type (8: uint8), the number of dimensions, each of them in
    four bytes, the values.
    """
    path = first_found(root, [name, f"{name}.gz"])
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path.name} is not an idx file of bytes")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(*map(int, shape))


class _Arrays(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE_CLASSES:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no CIFAR file does")
        return super().find_class(module, name)


def _cifar(path: Path, labels: bytes) -> RawImages:
    """A dict with rows of 3 x 32 x 32 bytes."""
    with path.open("rb") as file:
        found = _Arrays(file, encoding="bytes").load()
    return np.asarray(found[b"data"], np.uint8).reshape(-1, 3, 32, 32), np.asarray(found[labels], np.int64)


def _folders(classes: Sequence[Path], side: int | None = None) -> RawImages:
    """Images of each class, in order of the files' names."""
    images, labels = [], []
    for number, root in enumerate(classes):
        for path in sorted(root.iterdir()):
            images.append(_image(path, side))
            labels.append(number)
    return np.stack(images), np.array(labels)


def _image(path: Path, side: int | None) -> np.ndarray:
    with Image.open(path) as file:
        image = file.convert("RGB")
        if side is not None:
            image = image.resize((side, side), Image.Resampling.BILINEAR)
        return np.asarray(image)


READERS: dict[str, Callable[[Path, str], RawImages]] = {
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "cinic10": cinic10,
    "tiny-imagenet": tiny_imagenet,
    "femnist": femnist,
}

USERS: dict[str, Callable[[Path, str], Iterator[tuple[str, RawImages]]]] = {"femnist": femnist_users}
"""Datasets that come in parts already, each of a person."""
