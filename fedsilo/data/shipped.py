"""Data of other learning tasks than classification that come with scikit-learn's files: for examples and first steps.

Each function is a `python:` loader, such as `python:fedsilo.data.shipped:diabetes`. Nothing is downloaded, and
scikit-learn itself is not imported.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from fedsilo.data.loaders import shipped_digits, shipped_file
from fedsilo.errors import DataInvalid

Split = Literal["train", "test", "all"]

TEST_FRACTION: Final = 0.2

STROKES: Final = 8
"""Darkness, of 16, from which a pixel belongs to the digit and not to the paper."""

DIGIT_ATTRIBUTES: Final = ("even", "prime", "at least five", "with a loop")
"""Labels of a digit, in the order of their numbers."""

DESCRIPTIONS: Final = ("breast_cancer", "iris", "kddcup99", "lfw", "twenty_newsgroups", "wine_data")
"""Texts, by the data that they describe."""

_HOLDING: Final = ((0, 2, 4, 6, 8), (2, 3, 5, 7), (5, 6, 7, 8, 9), (0, 6, 8, 9))


def diabetes(split: Split = "train") -> tuple[np.ndarray, np.ndarray]:
    """Shipped data for regression: ten measurements of each of 442 patients, standardised, and the disease's
    progression in a year.

    Efron, Hastie, Johnstone, Tibshirani, "Least Angle Regression", Annals of Statistics 2004. The target is divided by
    100.
    """
    features = np.loadtxt(shipped_file("datasets", "data", "diabetes_data_raw.csv.gz"))
    target = np.loadtxt(shipped_file("datasets", "data", "diabetes_target.csv.gz")) / 100
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    chosen = _part(len(target), split)
    return features[chosen].astype(np.float32), target[chosen].astype(np.float32)


def digit_attributes(split: Split = "train") -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Data for multi-label classification: the 1,797 digits of 8 x 8 pixels, and which of `DIGIT_ATTRIBUTES` hold."""
    images, digits = _digits()
    held = np.stack([np.isin(digits, holding) for holding in _HOLDING], axis=1)
    chosen = _part(len(digits), split)
    return images[chosen], held[chosen].astype(np.uint8), DIGIT_ATTRIBUTES


def digit_masks(split: Split = "train") -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Shipped data for segmentation: digits with noise, and for each pixel whether it is of the digit's stroke (1) or
    of paper (0).

    The noise is the same in every silo and every run.
    """
    images, digits = _digits()
    masks = (images * 16 >= STROKES).astype(np.uint8)
    noisy = images + np.random.RandomState(0).normal(0, 0.3, images.shape).astype(np.float32)
    chosen = _part(len(digits), split)
    return noisy[chosen], masks[chosen], ("paper", "stroke")


def descriptions(length: int, split: Split = "train") -> tuple[np.ndarray, np.ndarray]:
    """Data for language models: passages of the texts in which scikit-learn describes its data, one byte a token
    (vocabulary 256).

    :param length: tokens of a passage; for the next token one more than `spec.data.inputShape`.
    :returns: passages (n, length), and of which of `DESCRIPTIONS` each is.
    """
    if length < 2:
        raise DataInvalid(f"length: {length}: is too short for a passage; use 2 or more")
    passages, texts = [], []
    for number, name in enumerate(DESCRIPTIONS):
        tokens = np.frombuffer(shipped_file("datasets", "descr", f"{name}.rst").read_bytes(), np.uint8)
        rows = len(tokens) // length
        passages.append(tokens[: rows * length].reshape(rows, length))
        texts += [number] * rows
    chosen = _part(len(texts), split)
    return np.concatenate(passages)[chosen].astype(np.int64), np.array(texts)[chosen]


def _digits() -> tuple[np.ndarray, np.ndarray]:
    images, digits = shipped_digits()
    return (images / 16).astype(np.float32).reshape(-1, 1, 8, 8), digits


def _part(n: int, split: str) -> np.ndarray:
    """One permutation, of which the first fifth is the test set."""
    order, test = np.random.RandomState(0).permutation(n), int(TEST_FRACTION * n)
    parts = {"test": order[:test], "train": order[test:], "all": np.arange(n)}
    if split not in parts:
        raise DataInvalid(f"split: {split!r}: is none; use {', '.join(parts)}")
    return parts[split]
