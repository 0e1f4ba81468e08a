"""Write the images and masks of this example: scikit-learn's digits under noise, in three laboratories and a test set.

A mask says of each pixel whether it is of the digit's stroke. The laboratories' annotation programs differ in what real
ones differ in: the values that stand for the classes, and whether a mask has a palette.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

DATA_DIR = Path(__file__).parent / "data"

STROKE = {"north": 1, "east": 255, "south": 2, "test": 1}
"""The value of a stroke's pixels, beside 0 for paper."""

COUNT = {"north": 60, "east": 100, "south": 40, "test": 200}

DARK_LEVEL = 8
"""Darkness, of 16, from which a pixel is of the stroke."""


def main() -> None:
    """Write `data/`, the same at every call."""
    digits = load_digits()
    order = list(range(len(digits.images)))
    random.Random(1).shuffle(order)
    noise = np.random.RandomState(1)
    shutil.rmtree(DATA_DIR, ignore_errors=True)
    for laboratory, count in COUNT.items():
        for item in order[:count]:
            large = digits.images[item].repeat(2, axis=0).repeat(2, axis=1)
            pixels = (large / 16 + noise.normal(0, 0.5, large.shape)).clip(-1, 2)
            image = Image.fromarray(((pixels + 1) * 85).astype(np.uint8))
            mask = Image.fromarray((large >= DARK_LEVEL).astype(np.uint8) * STROKE[laboratory])
            if laboratory == "north":
                mask.putpalette([255, 255, 255, 200, 0, 0])
            for folder, picture in (("images", image), ("masks", mask)):
                (DATA_DIR / laboratory / folder).mkdir(parents=True, exist_ok=True)
                picture.save(DATA_DIR / laboratory / folder / f"{item:04d}.png")
        order = order[count:]


if __name__ == "__main__":
    main()
