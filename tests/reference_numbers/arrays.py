"""The page of all arrays, arrays.md, from the files: `python -m tests.reference_numbers.arrays`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import product

import numpy as np

from tests.reference_numbers import DIRECTORY, Numbers, load

PAGE = DIRECTORY / "arrays.md"

NETWORK = {"encoder.0.weight": (5, 6), "encoder.0.bias": (5,), "classifier.weight": (4, 5)}
"""Tensors of the small network that most files use; with or without `classifier.bias`."""

NO_ARRAY = ("note",)


def names() -> list[str]:
    """Every file, without its ending."""
    return sorted(file.stem for file in DIRECTORY.glob("*.npz"))


HEAD = """# Arrays of the reference numbers

Written by `python -m tests.reference_numbers.arrays`; [README.md](README.md) says where the files come from. A name
with braces stands for several arrays of one shape, `<network>` for the tensors of the network there; names with `=` are
settings and single results.
"""


def page() -> str:
    """A paragraph for each file."""
    return HEAD + "".join(f"\n**{name}**: {'; '.join(array_lines(load(name)))}.\n" for name in names())


def array_lines(numbers: Numbers) -> list[str]:
    """The arrays of one file, those of one shape whose names differ in numbers alone together."""
    shapes = {name: array.shape for name, array in _without_networks(numbers).items() if array.ndim}
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for name, shape in shapes.items():
        groups[re.sub(r"\d+", "#", name), shape].append(name)
    values = [
        f"`{name}` = {_scalar(array)}"
        for name, array in numbers.items()
        if not array.ndim and name not in NO_ARRAY
    ]
    networks = _joined_names([prefix + "<network>" for prefix in _networks(numbers)])
    return [
        *(f"`{name}`" for name in networks),
        *(f"`{name}` {shape}" for (_, shape), group in groups.items() for name in _joined_names(group)),
        *values,
    ]


def _scalar(array: np.ndarray) -> str:
    value = array.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _networks(numbers: Numbers) -> list[str]:
    """Prefixes of complete networks."""
    last = "encoder.0.weight"
    prefixes = [name.removesuffix(last) for name in numbers if name.endswith(last)]
    return [
        prefix
        for prefix in prefixes
        if all(
            prefix + name in numbers and numbers[prefix + name].shape == shape
            for name, shape in NETWORK.items()
        )
    ]


def _without_networks(numbers: Numbers) -> Mapping[str, np.ndarray]:
    tensors = {prefix + name for prefix in _networks(numbers) for name in (*NETWORK, "classifier.bias")}
    return {name: array for name, array in numbers.items() if name not in tensors}


def _joined_names(group: Collection[str]) -> list[str]:
    """`x0`, `x1`, `x2` as `x{0..2}`; each on its own where the numbers are no complete table."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in group:
        found[re.sub(r"\d+", "#", name)].append(name)
    return [joined for same in found.values() for joined in _table(same)]


def _table(same: list[str]) -> list[str]:
    axes = [
        sorted(set(axis)) for axis in zip(*(map(int, re.findall(r"\d+", name)) for name in same), strict=True)
    ]
    ranges = iter([_range(axis) for axis in axes])
    complete = len(list(product(*axes))) == len(same)
    joined = re.sub(r"\d+", lambda _: next(ranges), same[0])
    return [joined if complete else f"{joined}, {len(same)} of them"]


def _range(axis: list[int]) -> str:
    if len(axis) == 1:
        return str(axis[0])
    consecutive = axis == list(range(axis[0], axis[-1] + 1))
    return f"{{{axis[0]}..{axis[-1]}}}" if consecutive else f"{{{','.join(map(str, axis))}}}"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
