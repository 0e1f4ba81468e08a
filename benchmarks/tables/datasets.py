"""The loader that the tables' manifests name: a dataset's images as the papers prepare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.tables.layouts import READERS, USERS, RawImages, join_parts
from fedsilo.api.datasets import PartitionSpec
from fedsilo.data.partitions import partition

ANGLES = 15 * np.arange(10)
"""Degrees, of FedBR's rotated images."""

MIN_USER_IMAGES = 5
"""Training images of a user that becomes a silo, as in MAP's code."""


@dataclass(frozen=True)
class DatasetFacts:
    """What a job states about a dataset.

    :param mean: of each channel over the training set, values from 0 to 1, as the papers' code has it; with `deviation`
        it normalises.
    """

    classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)


CIFAR10 = DatasetFacts(10, (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR100 = DatasetFacts(100, (3, 32, 32), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))

DATASETS = {
    "mnist": DatasetFacts(10, (1, 28, 28)),
    "fashion-mnist": DatasetFacts(10, (1, 28, 28)),
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": DatasetFacts(10, (3, 32, 32)),
    "cinic10": DatasetFacts(10, (3, 32, 32), CIFAR10.mean, CIFAR10.deviation),
    "tiny-imagenet": DatasetFacts(200, (3, 32, 32)),
    "femnist": DatasetFacts(62, (1, 28, 28)),
}


def load(
    dataset: str,
    folder: str,
    split: str,
    samples: int | None = None,
    normalised: bool = False,
    rotated: str | None = None,
    division: Mapping[str, Any] | None = None,
    pooled: bool = False,
    left: int | None = None,
    users: int | None = None,
    user: int | None = None,
) -> RawImages:
    """A dataset's images and classes.

    :param folder: that the dataset lies in.
    :param samples: so many of them only, the first of each class, as many of each.
    :param normalised: by the mean and deviation of each channel.
    :param rotated: FedBR's rotations. `silo`: silo i's training images by 15 i degrees; `mixture`: by angles of which
        each silo has a mixture of its own. Test images once by each of ten angles.
    :param division: the silos' partition, which decides whose an image is.
    :param pooled: the images of all silos, without those that none of them has.
    :param left: so many images that no silo has, as many of each class as far as there are.
    :param users: the images of so many of its users only, the first that have `LEAST` of them for training.
    :param user: of these the one with this number only, from 0.
    """
    if users is None:
        images, labels = _read_split(dataset, folder, split)
    elif left is not None:
        images, labels = _other_users(dataset, folder, users, left)
    else:
        parts = _users(dataset, folder, split, users)
        images, labels = join_parts(parts) if user is None else parts[user]
    if left is not None and users is None:
        assert division is not None
        rest = _leftover_indices(labels, samples, division)
        chosen = rest[balanced_indices(labels[rest], left)]
        images, labels = images[chosen], labels[chosen]
    elif samples is not None:
        chosen = balanced_indices(labels, samples)
        images, labels = images[chosen], labels[chosen]
    if rotated is not None:
        assert division is not None
        images, labels = (rotations if split == "test" else rotate_images)(images, labels, rotated, division)
    if pooled and users is None:
        assert division is not None
        held = np.unique(np.concatenate(_parts(labels, division)))
        images, labels = images[held], labels[held]
    if normalised:
        images = _normalise(images, DATASETS[dataset])
    return images, labels


def _normalise(images: np.ndarray, known: DatasetFacts) -> np.ndarray:
    """Images of bytes, in whatever order of axes, as float32 with channels first."""
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.shape[1:] != known.shape:
        images = np.moveaxis(images, -1, 1)
    mean, deviation = (np.array(part, np.float32)[:, None, None] for part in (known.mean, known.deviation))
    return (images.astype(np.float32) / 255 - mean) / deviation


@lru_cache(maxsize=4)
def _read_split(dataset: str, folder: str, split: str) -> RawImages:
    return READERS[dataset](Path(folder), split)


def _with_enough(dataset: str, folder: str) -> Iterator[tuple[str, RawImages]]:
    """Users that have enough training images to become silos, by name."""
    return (
        (name, raw) for name, raw in USERS[dataset](Path(folder), "train") if len(raw[1]) >= MIN_USER_IMAGES
    )


def _other_users(dataset: str, folder: str, count: int, samples: int) -> RawImages:
    """So many training images, of users after the first that are silos."""
    found: list[RawImages] = []
    for _, raw in islice(_with_enough(dataset, folder), count, None):
        found.append(raw)
        if sum(len(labels) for _, labels in found) >= samples:
            break
    images, labels = join_parts(found)
    return images[:samples], labels[:samples]


@lru_cache(maxsize=2)
def _training(dataset: str, folder: str, count: int) -> dict[str, RawImages]:
    """The first users that have enough images, by name.

    :raises ValueError: there are fewer.
    """
    found = dict(islice(_with_enough(dataset, folder), count))
    if len(found) < count:
        raise ValueError(
            f"{dataset}: users with at least {MIN_USER_IMAGES} training images: {len(found)}, and {count} are to be "
            "silos; put more of LEAF's files into the folder"
        )
    return found


@lru_cache(maxsize=2)
def _users(dataset: str, folder: str, split: str, count: int) -> list[RawImages]:
    """The images of these users in one split, none of those who have none there.

    :raises ValueError: nobody has any.
    """
    found = _training(dataset, folder, count)
    if split == "train":
        return list(found.values())
    held = dict(USERS[dataset](Path(folder), split))
    if found.keys().isdisjoint(held):
        raise ValueError(
            f"{dataset}/{split}: has no image of the training users; make it with LEAF's `-t sample`, which divides "
            "each user's images"
        )
    return [held.get(name, (images[:0], labels[:0])) for name, (images, labels) in found.items()]


def balanced_indices(labels: np.ndarray, samples: int) -> np.ndarray:
    """Indices of the first samples of every class, ascending; equally many of each, where there are enough."""
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.sort(np.concatenate([ids[: samples // len(members)] for ids in members]))


def rotate_images(
    images: np.ndarray, labels: np.ndarray, rotated: str, division: Mapping[str, Any]
) -> RawImages:
    """Each image by an angle of the silo that it goes to."""
    rng = np.random.RandomState(division.get("seed", 0))
    angles = np.zeros(len(labels))
    for silo, part in enumerate(_parts(labels, division)):
        if rotated == "silo":
            angles[part] = ANGLES[silo % len(ANGLES)]
        else:
            angles[part] = rng.choice(ANGLES, len(part), p=rng.dirichlet(np.full(len(ANGLES), 0.1)))
    return np.stack([_turn(image, angle) for image, angle in zip(images, angles, strict=True)]), labels


def _parts(labels: np.ndarray, division: Mapping[str, Any]) -> list[np.ndarray]:
    """The indices of each silo's images."""
    spec = PartitionSpec.model_validate({**division, "index": 0})
    return partition(np.asarray(labels, np.int64), spec)


def _leftover_indices(labels: np.ndarray, samples: int | None, division: Mapping[str, Any]) -> np.ndarray:
    """The indices of images that no silo has, where silos share the first samples of each class."""
    shared = np.arange(len(labels)) if samples is None else balanced_indices(labels, samples)
    held = shared[np.concatenate(_parts(labels[shared], division))]
    return np.setdiff1d(np.arange(len(labels)), held)


def rotations(images: np.ndarray, labels: np.ndarray, rotated: str, division: Mapping[str, Any]) -> RawImages:
    """All images by each angle."""
    del rotated, division
    found = [_turn(image, float(angle)) for angle in ANGLES for image in images]
    return np.stack(found), np.tile(labels, len(ANGLES))


def _turn(image: np.ndarray, angle: float) -> np.ndarray:
    if not angle:
        return image
    last = np.moveaxis(image, 0, -1) if image.ndim == 3 and image.shape[0] == 3 else image
    return np.asarray(Image.fromarray(last).rotate(angle, Image.Resampling.BILINEAR)).reshape(last.shape)
