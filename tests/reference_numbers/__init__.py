"""Numbers that the methods' released programs produced; README.md says where each file comes from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

DIRECTORY = Path(__file__).parent

Numbers = Mapping[str, np.ndarray]
"""The arrays of one file by name."""


def path(name: str) -> Path:
    """Where one file lies; its name is without the ending."""
    return DIRECTORY / f"{name}.npz"


@cache
def load(name: str) -> dict[str, np.ndarray]:
    """All arrays of one file."""
    with np.load(path(name), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}
