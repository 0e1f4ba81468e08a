"""Trees that are handed out with parts in place of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.encodings.halves import BFloat16, Float16
from fedsilo.encodings.int8 import Int8
from fedsilo.encodings.trees import decoded_tree, encoded_tree
from fedsilo.errors import Problem
from fedsilo.wire import Tree

NAMES = {"w", "b"}


def tree() -> Tree:
    return {
        "w": np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5),
        "proxies": np.full(3, 0.1, np.float32),
        "b": np.array(0.25, np.float32),
        "steps": np.array(7),
    }


@pytest.mark.parametrize("encoding", [Float16(), BFloat16(), Int8(16)], ids=str)
def test_only_the_float32_tensors_that_are_named_change(encoding: Float16 | BFloat16 | Int8) -> None:
    sent = encoded_tree(tree(), NAMES, encoding)
    found = decoded_tree(sent, NAMES, encoding)
    assert list(found) == list(tree())
    for name, array in tree().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.allclose(found[name], array, atol=0.01)
        assert name in NAMES or np.array_equal(found[name], array)
    assert (found["w"] != tree()["w"]).any() and found["steps"] == 7
    assert sum(array.nbytes for array in sent.values()) < sum(array.nbytes for array in tree().values())


@pytest.mark.parametrize(
    ("part", "array"),
    [
        ("w.scales", np.ones(2, np.float32)),
        ("w.scales", np.ones(3)),
        ("w", np.ones((8, 5), np.uint8)),
        ("w.scales", None),
    ],
)
def test_parts_of_another_form_are_refused(part: str, array: np.ndarray | None) -> None:
    sent = encoded_tree(tree(), NAMES, Int8(16))
    sent = {name: found for name, found in sent.items() if name != part}
    sent |= {} if array is None else {part: array}
    with pytest.raises(Problem, match="tensor w: is not encoded as int8"):
        decoded_tree(sent, NAMES, Int8(16))


def test_parts_that_give_no_finite_numbers_are_refused() -> None:
    sent = encoded_tree(tree(), NAMES, Int8(16))
    sent["w.scales"][1] = np.nan
    with pytest.raises(Problem, match=r"w\.scales: holds NaN"):
        decoded_tree(sent, NAMES, Int8(16))
