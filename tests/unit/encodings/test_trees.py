"""Trees that are handed out with parts in place of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.encodings.encoding import Encoding
from fedsilo.encodings.float32 import Float32Encoding
from fedsilo.encodings.halves import BFloat16Encoding, Float16Encoding
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.trees import decoded_tree, encoded_tree
from fedsilo.encodings.zstd import ZstdEncoding
from fedsilo.errors import Problem
from fedsilo.wire import Tree

SHAPES: dict[str, tuple[int, ...]] = {"w": (8, 5), "b": ()}


def tree() -> Tree:
    return {
        "w": np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5),
        "proxies": np.full(3, 0.1, np.float32),
        "b": np.array(0.25, np.float32),
        "steps": np.array(7),
    }


@pytest.mark.parametrize(
    "encoding",
    [
        Float16Encoding(),
        BFloat16Encoding(),
        Int8Encoding(16),
        ZstdEncoding(Int8Encoding(16)),
        ZstdEncoding(BFloat16Encoding()),
    ],
    ids=str,
)
def test_only_the_float32_tensors_that_are_named_change(encoding: Encoding) -> None:
    sent = encoded_tree(tree(), SHAPES, encoding)
    found = decoded_tree(sent, SHAPES, encoding)
    assert list(found) == list(tree())
    for name, array in tree().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.allclose(found[name], array, atol=0.01)
        assert name in SHAPES or np.array_equal(found[name], array)
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
    sent = encoded_tree(tree(), SHAPES, Int8Encoding(16))
    sent = {name: found for name, found in sent.items() if name != part}
    sent |= {} if array is None else {part: array}
    with pytest.raises(Problem, match="tensor w: is not encoded as int8"):
        decoded_tree(sent, SHAPES, Int8Encoding(16))


def test_parts_that_give_no_finite_numbers_are_refused() -> None:
    sent = encoded_tree(tree(), SHAPES, Int8Encoding(16))
    sent["w.scales"][1] = np.nan
    with pytest.raises(Problem, match=r"w\.scales: holds NaN"):
        decoded_tree(sent, SHAPES, Int8Encoding(16))


def test_compression_alone_changes_no_bit() -> None:
    large = tree() | {"w": np.zeros((8, 5), np.float32)}
    sent = encoded_tree(large, SHAPES, ZstdEncoding(Float32Encoding()))
    assert sent["w"].nbytes < large["w"].nbytes and sent["w.frames"].tolist() == [sent["w"].size]
    found = decoded_tree(sent, SHAPES, ZstdEncoding(Float32Encoding()))
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in large.items()
    }


def test_a_tensor_of_another_shape_is_sent_as_it_is() -> None:
    wider = tree() | {"w": np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)}
    for encoding in (Int8Encoding(16), ZstdEncoding(Int8Encoding(16))):
        sent = encoded_tree(wider, SHAPES, encoding)
        assert sent["w"] is wider["w"] and "w.scales" not in sent
        assert decoded_tree(sent, SHAPES, encoding)["w"] is wider["w"]


@pytest.mark.parametrize(
    ("part", "array"),
    [
        ("w.frames", np.ones(3, np.uint32)),
        ("w", np.ones(4 * 3 + 40 + 1, np.uint8)),
        ("w", np.ones((8, 5), np.uint8)),
        ("w", np.ones(40, np.int8)),
    ],
)
def test_frames_of_another_form_are_refused(part: str, array: np.ndarray) -> None:
    sent = encoded_tree(tree(), SHAPES, ZstdEncoding(Int8Encoding(16))) | {part: array}
    with pytest.raises(Problem, match="tensor w: is not encoded as int8 with zstd"):
        decoded_tree(sent, SHAPES, ZstdEncoding(Int8Encoding(16)))
