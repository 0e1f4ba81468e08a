"""Features that an institution's own object reads by item: whatever its `read` does, one line names the item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.data.arrays import Arrays
from fedsilo.data.loaders import load
from fedsilo.data.sources import LazyFeatures
from fedsilo.errors import DataInvalid
from fedsilo.learning.examples import Examples
from tests.unit.data.specs import data, dataset, part

VALUES = np.random.RandomState(0).rand(12, 1, 2, 3).astype(np.float32)


@dataclass(frozen=True)
class Volumes:
    """Twelve volumes that are read by item.

    :param act: what `read` does with the items and what it has read of them.
    """

    act: Callable[[np.ndarray, np.ndarray], Any]
    shape: Any = VALUES.shape
    dtype: Any = VALUES.dtype

    def read(self, items: np.ndarray) -> Any:
        return self.act(items, VALUES[items])


def raise_at_7(items: np.ndarray, values: np.ndarray) -> np.ndarray:
    if 7 in items:
        raise EOFError("Compressed file of Mrs. Miller ended")
    return values


def leave_at_7(items: np.ndarray, values: np.ndarray) -> np.ndarray:
    if 7 in items:
        raise SystemExit(0)
    return values


def miss_a_file(items: np.ndarray, values: np.ndarray) -> np.ndarray:
    raise FileNotFoundError(2, "No such file or directory", "/data/miller.nii")


def fill_memory(items: np.ndarray, values: np.ndarray) -> np.ndarray:
    raise MemoryError


def fail_with_several(items: np.ndarray, values: np.ndarray) -> np.ndarray:
    if len(items) > 1:
        raise ValueError("one at a time")
    return values


ACTS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "raise_at_7": raise_at_7,
    "leave_at_7": leave_at_7,
    "miss_a_file": miss_a_file,
    "fill_memory": fill_memory,
    "fail_with_several": fail_with_several,
    "tensor": lambda _, values: torch.from_numpy(values),
    "list": lambda _, values: list(values),
    "too_few": lambda _, values: values[1:],
    "bytes": lambda _, values: (values * 255).astype(np.uint8),
    "text": lambda _items, _values: "no array",
    "doubles": lambda _, values: values.astype(np.float64),
}


def volumes(act: str = "tensor", **other: Any) -> tuple[Volumes, np.ndarray]:
    return Volumes(ACTS[act], **other), np.arange(12) % 2


def torch_dtype() -> tuple[Volumes, np.ndarray]:
    return volumes(dtype=torch.float32)


def no_shape() -> tuple[Volumes, np.ndarray]:
    return volumes(shape=(12, "many"))


class UnmountedVolumes:
    """An object whose file cannot even be opened."""

    dtype = VALUES.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        raise OSError("not mounted")

    def read(self, items: np.ndarray) -> np.ndarray:
        raise AssertionError(items)


def unmounted_volumes() -> tuple[UnmountedVolumes, np.ndarray]:
    return UnmountedVolumes(), np.arange(12) % 2


def load_volumes(function: str = "volumes", partition: Any = None, **config: Any) -> Arrays:
    spec = dataset(f"python:{__name__}:{function}", partition=partition, **config)
    return load(spec, data(1, 2, 3, classes=2), root=Path())


@pytest.mark.parametrize("act", ["tensor", "list", "doubles"])
def test_what_is_no_array_becomes_one(act: str) -> None:
    assert np.array_equal(load_volumes(act=act).features, VALUES)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("raise_at_7", "item 7: LOADER: read raised EOFError: Compressed file of Mrs. Miller ended; mend or"),
        ("leave_at_7", "item 7: LOADER: read raised SystemExit: 0; mend or remove"),
        ("miss_a_file", "item 4: LOADER: read raised FileNotFoundError: .*miller.nii'; mend or remove"),
        ("fill_memory", r"does not fit into memory \(MemoryError\); give the trainer more"),
        ("fail_with_several", "items 4, 5, 6, 7, 4 more: LOADER: read raised ValueError: one at a time; "),
        ("too_few", r"items 4.*: LOADER: read returned shape \[7, 1, 2, 3\] for 8 items; return one row for each"),
        ("bytes", "items 4.*: LOADER: read returned uint8, and dtype of its object is float32; make them"),
        ("text", "items 4.*: LOADER: features of its read have dtype <U8; give a numeric array"),
    ],
)  # fmt: skip
def test_what_read_does_is_an_error_that_names_the_item(act: str, message: str) -> None:
    features = load_volumes(act=act).features
    assert isinstance(features, LazyFeatures)
    wanted = message.replace("LOADER", f"loader: python:{__name__}:volumes")
    with pytest.raises(DataInvalid, match=f"^dataset 'scans': {wanted}") as caught:
        features.read(np.arange(4, 12))
    assert "iller" not in caught.value.redacted_text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("torch_dtype", "Volumes, whose shape or dtype is none of NumPy's .TypeError: "),
        ("no_shape", "Volumes, whose shape or dtype is none of NumPy's .TypeError: "),
        (
            "unmounted_volumes",
            "UnmountedVolumes, whose shape or dtype is none of NumPy's .OSError: not mounted.; give a tuple",
        ),
    ],
)
def test_an_object_that_does_not_say_what_it_holds_is_refused(function: str, message: str) -> None:
    with pytest.raises(DataInvalid, match=f"^dataset 'scans': loader: python:.* returned {message}"):
        load_volumes(function)


def test_the_item_is_that_of_the_whole_dataset() -> None:
    arrays = load_volumes(act="raise_at_7", partition=part("iid", 1, index=0)).take(np.arange(12))
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': item 7: "):
        arrays.require_readable()


def test_batches_that_are_read_ahead_name_the_item_too() -> None:
    arrays = load_volumes(act="raise_at_7")
    examples = Examples.from_arrays(arrays.features, arrays.labels, "cpu")
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': item 7: "):
        list(examples.stream(torch.split(torch.arange(12), 4)))
