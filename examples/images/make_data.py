"""Write the images of this example: scikit-learn's handwritten digits, of a public source and of three hospitals.

The hospitals' folders differ in what real ones differ in: how often each digit is written, what a class is called, and
the scanner.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

DATA_DIR = Path(__file__).parent / "data"

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

FREQUENT_CLASSES = {"north": (0, 1, 2, 3), "east": (3, 4, 5, 6), "south": (7, 8, 9, 0)}
"""Digits of which a hospital has many."""

FREQUENT_COUNT, RARE_COUNT = 30, 2
"""Images of a digit that is frequent in a hospital, and of one that is not."""

PUBLIC_COUNT, TEST_COUNT = 150, 400
"""Images that anybody may have, and those of the test set."""


def main() -> None:
    """Write `data/`, the same at every call."""
    digits = load_digits()
    order = list(range(len(digits.target)))
    random.Random(1).shuffle(order)
    shutil.rmtree(DATA_DIR, ignore_errors=True)
    write("public", digits, order[:PUBLIC_COUNT])
    write("test", digits, order[PUBLIC_COUNT : PUBLIC_COUNT + TEST_COUNT])
    rest = order[PUBLIC_COUNT + TEST_COUNT :]
    for hospital, frequent in FREQUENT_CLASSES.items():
        chosen = []
        for digit in range(len(NAMES)):
            own = [item for item in rest if digits.target[item] == digit]
            chosen += own[: FREQUENT_COUNT if digit in frequent else RARE_COUNT]
        rest = [item for item in rest if item not in set(chosen)]
        write(hospital, digits, chosen)
    (DATA_DIR / "east" / "zero").rename(DATA_DIR / "east" / "naught")


def write(source: str, digits: Any, chosen: Sequence[int]) -> None:
    """One PNG for each image, in the folder of its class."""
    for item in chosen:
        pixels = digits.images[item] * 255 / 16
        if source == "south":
            pixels = 60 + pixels / 2  # a scanner with little contrast
        folder = DATA_DIR / source / NAMES[digits.target[item]]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{item:04d}.png")


if __name__ == "__main__":
    main()
