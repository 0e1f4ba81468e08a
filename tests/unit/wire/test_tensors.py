"""Tensor specs, contracts and tensor files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import safetensors.numpy
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsilo.errors import MethodError, Problem
from fedsilo.wire import (
    DTYPES,
    BlobReader,
    BlobRef,
    Contract,
    ExpectedBlock,
    ModelSignature,
    TensorSpec,
    Tree,
    copy_blob,
    open_blob,
    specs_of,
    write_blob,
    write_tensors,
)
from fedsilo.wire.tensors import BlockContent, require_finite
from tests.unit.wire.examples import BLOCKS, CONTRACT, refusal

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20).filter(
    "__metadata__".__ne__  # which is no tensor's name in this format
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    found: Tree = {}
    for name in draw(st.lists(names, unique=True, max_size=6)):
        dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
        shape = draw(shapes)
        count = int(np.prod(shape)) * dtype.itemsize
        content = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
        found[name] = (content % 2 if dtype.kind == "b" else content).view(dtype).reshape(shape)
    return found


def require_same_tree(found: Tree, wanted: Tree) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        assert found[name].tobytes() == array.tobytes()


@settings(max_examples=60)
@given(tree=trees())
def test_a_blob_is_read_back_by_us_and_by_safetensors(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("blobs")
    ref = write_blob(tree, directory)
    path = directory / ref.digest
    assert [found.name for found in directory.iterdir()] == [ref.digest]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == ref.digest
    assert path.stat().st_size == ref.length
    with open_blob(path) as blob:
        require_same_tree(blob.tree(), tree)
        assert tuple(blob.specs.values()) == specs_of(tree)
    theirs = safetensors.numpy.load_file(path)
    require_same_tree({name: theirs[name] for name in tree}, tree)


@settings(max_examples=30)
@given(tree=trees())
def test_we_read_what_safetensors_writes(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("blobs") / "theirs"
    safetensors.numpy.save_file(tree, path, metadata={"format": "np"})
    with open_blob(path) as blob:
        require_same_tree({name: blob[name] for name in tree}, tree)


def test_views_are_aligned_read_only_and_outlive_the_file(tmp_path: Path) -> None:
    tree = {"flag": np.array([True]), "w": np.ones((3, 3), np.float32), "n": np.array(5, np.int64)}
    write_tensors(tree, tmp_path / "model")
    with open_blob(tmp_path / "model") as blob:
        views = blob.tree()
        assert len(blob) == 3
    assert all(view.flags.aligned and not view.flags.writeable for view in views.values())
    assert views["w"].sum() == 9
    assert views["n"].ctypes.data % 64 == 0  # the widest comes first, where the data begin


def test_every_number_of_half_precision_is_judged_as_ieee_754_says() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for number in numbers:
        content = BlockContent("w", "float16")
        content.update(np.array([0, number, -0.0], np.float16).view(np.uint8).data)
        assert (content.fault is None) == bool(np.isfinite(number)), number
    require_finite({"w": numbers[np.isfinite(numbers)]})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_numbers_are_finite(dtype: str) -> None:
    limits = np.finfo(dtype)
    numbers = [
        limits.max,
        limits.min,
        limits.tiny,
        limits.smallest_subnormal,
        -limits.smallest_subnormal,
        0.0,
        -0.0,
    ]
    require_finite({"w": np.array(numbers * 1000, dtype)})
    for number in (np.nan, -np.nan, np.inf, -np.inf):
        for place in (0, 3500, 6999):
            tree = {"w": np.array(numbers * 1000, dtype)}
            tree["w"][place] = number
            with refusal("not-finite"):
                require_finite(tree)


def test_a_file_that_changes_while_it_is_read_gives_what_it_was_or_is_refused(tmp_path: Path) -> None:
    tree: Tree = {"w": np.arange(1 << 19, dtype=np.float32), "n": np.array(5, np.int64)}
    path = tmp_path / "tensors"
    write_tensors(tree, path)
    size = path.stat().st_size

    def read(change: Callable[[BinaryIO], object]) -> dict[str, bytes]:
        """The data, with a change of the file after the first piece."""
        found = dict.fromkeys(tree, b"")
        with path.open("rb") as file, path.open("r+b") as other:
            for name, piece in BlobReader(path, file).pieces():
                found[name] += bytes(piece)
                if sum(map(len, found.values())) == len(piece):
                    change(other)
        return found

    assert read(lambda _: None) == {name: array.tobytes() for name, array in tree.items()}
    with refusal("malformed"):
        read(lambda other: os.truncate(other.fileno(), size - 1))
    write_tensors(tree, path)
    with refusal("malformed"):
        read(lambda other: os.pwrite(other.fileno(), b"x", size))


def test_a_blob_that_is_there_is_kept_and_a_chosen_path_is_replaced(tmp_path: Path) -> None:
    tree = {"w": np.ones(3, np.float32)}
    first = write_blob(tree, tmp_path)
    before = (tmp_path / first.digest).stat().st_ino
    assert write_blob({"w": np.ones((2, 3), np.float32)[0]}, tmp_path) == first
    assert (tmp_path / first.digest).stat().st_ino == before
    path = tmp_path / "model"
    write_tensors({}, path)
    assert write_tensors(tree, path) == first
    assert path.read_bytes() == (tmp_path / first.digest).read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


@settings(max_examples=30)
@given(tree=trees(), size=st.sampled_from([0, 3 << 20]))
def test_a_blob_is_named_by_the_hash_that_was_asked_for(
    tree: Tree, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory, other = tmp_path_factory.mktemp("blobs"), tmp_path_factory.mktemp("copies")
    tree = {"large": np.zeros(size, np.uint8)} | tree
    plain, ref = write_blob(tree, directory), write_blob(tree, directory, "blake3")
    content = (directory / ref.digest).read_bytes()
    assert ref.digest == f"blake3-{blake3(content).hexdigest()}"
    assert content == (directory / plain.digest).read_bytes()
    copy_blob(directory / plain.digest, ref, other)
    assert (other / ref.digest).read_bytes() == content
    with pytest.raises(Problem, match=r"malformed: .*its BLAKE3 is [0-9a-f]{12}, not 000000000000"):
        copy_blob(directory / ref.digest, BlobRef(f"blake3-{'0' * 64}", ref.length), other)


def test_trees_that_cannot_travel_are_refused(tmp_path: Path) -> None:
    for code, tree in (
        ("wrong-dtype", {"w": np.ones(2, np.complex64)}),
        ("malformed", {"a b": np.ones(2)}),
        ("malformed", {"__metadata__": np.ones(2)}),
        ("too-long", {"w": np.broadcast_to(np.float64(0), (1 << 38,))}),
    ):
        with refusal(code):
            write_blob(tree, tmp_path)
    assert list(tmp_path.iterdir()) == []


def tensor_file(table: object, data: bytes = b"", length: int | None = None) -> bytes:
    header = table if isinstance(table, bytes) else json.dumps(table).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


BAD_FILES = {
    "empty": b"",
    "no header": b"\1\0\0\0",
    "header longer than the file": tensor_file({}, length=1000),
    "header of 2**63 bytes": tensor_file({}, length=1 << 63),
    "not JSON": tensor_file(b"{"),
    "deep JSON": tensor_file(b'{"a":' * 100_000),
    "a list": tensor_file([1]),
    "a long number": tensor_file(b'{"w":' + b"9" * 5000 + b"}"),
    "one name twice": tensor_file(b'{"w":1,"w":1}'),
    "an entry that is no map": tensor_file({"w": 3}),
    "unknown dtype": tensor_file({"w": entry(dtype="F8")}, bytes(8)),
    "dtype that is a list": tensor_file({"w": entry(dtype=[])}, bytes(8)),
    "negative shape": tensor_file({"w": entry(shape=[-2, -1])}, bytes(8)),
    "shape of bools": tensor_file({"w": entry(shape=[True, 2])}, bytes(8)),
    "shape that overflows": tensor_file({"w": entry(shape=[1 << 62, 4])}, bytes(8)),
    "one more key": tensor_file({"w": entry(more=1)}, bytes(8)),
    "span of another length": tensor_file({"w": entry(data_offsets=[0, 4])}, bytes(8)),
    "a hole": tensor_file({"w": entry(data_offsets=[4, 12])}, bytes(12)),
    "an overlap": tensor_file({"v": entry(), "w": entry(data_offsets=[4, 12])}, bytes(12)),
    "data missing": tensor_file({"w": entry()}, bytes(7)),
    "data left over": tensor_file({"w": entry()}, bytes(9)),
    "a name with a space": tensor_file({"w w": entry()}, bytes(8)),
}


@pytest.mark.parametrize("data", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_tensor_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad"
    path.write_bytes(data)
    with refusal("malformed"):
        open_blob(path)


@settings(max_examples=200)
@given(noise=st.binary(max_size=80))
@example(noise=b"{}")
def test_noise_is_refused_or_holds_no_data(noise: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    for data in (noise, tensor_file(noise)):
        path.write_bytes(data)
        with suppress(Problem), open_blob(path) as blob:
            assert not any(spec.nbytes for spec in blob.specs.values())  # as {} is a header of no tensors


def test_a_model_signature_survives_json() -> None:
    signature = ModelSignature((TensorSpec("w", (2, 3), "float32"), TensorSpec("n", (), "int64")), 10, 84)
    assert ModelSignature.from_dict(json.loads(json.dumps(signature.to_dict(), sort_keys=True))) == signature
    assert [spec.nbytes for spec in signature.tensors] == [24, 8]


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": 0},
        {"feature": 1.5},
        {"more": 1},
        {"tensors": {}},
        {"tensors": [{"name": "w", "shape": 3, "dtype": "float32"}]},
        {"tensors": [{"name": "w", "shape": [3], "dtype": "float32"}] * 2},
    ],
)
def test_a_model_signature_is_read_strictly(changes: dict[str, Any]) -> None:
    with refusal("malformed"):
        ModelSignature.from_dict({"tensors": [], "classes": 2, "feature": 3} | changes)


def test_a_contract_is_named_by_its_content() -> None:
    assert CONTRACT.digest() == Contract(BLOCKS, ("accuracy", "loss")).digest()
    others = (
        Contract(BLOCKS),
        Contract(BLOCKS[::-1], CONTRACT.metrics),
        Contract(BLOCKS[1:], CONTRACT.metrics),
    )
    assert len({CONTRACT.digest(), *(other.digest() for other in others)}) == 4
    assert dataclasses.replace(CONTRACT, algorithm="sha256").digest() == CONTRACT.digest()
    assert dataclasses.replace(CONTRACT, algorithm="blake3").digest() != CONTRACT.digest()
    unlabelled = ExpectedBlock("class_counts", "counts/0", (1,), "int64")
    optional = ExpectedBlock("class_counts", "counts/0", (1,), "int64", 0)
    assert Contract((unlabelled,)).digest() != Contract((optional,)).digest()


def test_a_contract_says_what_leaves() -> None:
    assert CONTRACT.max_bytes() == 60 + 8 + 8 + 14 + 14
    assert CONTRACT.describe() == [
        "model: 2 tensors, 68 bytes",
        "class counts: 1 tensor, 8 bytes, only of classes with enough samples, at most 1 of them",
        "class means: 2 tensors, 28 bytes, only of classes with enough samples, at most 2 of them",
        "metrics: accuracy, loss",
    ]


@given(kept=st.sets(st.integers(0, len(BLOCKS) - 1)))
def test_blocks_of_a_class_may_be_left_out_and_others_may_not(kept: set[int]) -> None:
    blocks = [BLOCKS[index] for index in sorted(kept)]
    if {0, 1} <= kept:
        CONTRACT.check(blocks, {})
    else:
        with refusal("missing-block"):
            CONTRACT.check(blocks, {})


@given(order=st.permutations(range(len(BLOCKS))))
def test_the_order_is_the_contracts(order: list[int]) -> None:
    if order != sorted(order):
        with refusal("unexpected-block"):
            CONTRACT.check([BLOCKS[index] for index in order], {})


def test_a_block_comes_once() -> None:
    with refusal("unexpected-block"):
        CONTRACT.check([*BLOCKS, BLOCKS[-1]], {})


def test_contracts_that_contradict_themselves_are_not_made() -> None:
    for arguments in (("weights", "w", (1,), "float32"), ("class_counts", "counts", (1,), "int64", 0)):
        with pytest.raises(MethodError):
            ExpectedBlock(*arguments)
    with pytest.raises(MethodError):
        Contract((BLOCKS[0], BLOCKS[0]))
    with pytest.raises(MethodError):
        Contract((), ("a b",))


@pytest.mark.parametrize(
    ("shape", "dtype", "code"),
    [
        ((9,), "uint8", None),
        ((0,), "uint8", None),
        ((10,), "uint8", "wrong-shape"),
        ((3, 3), "uint8", "wrong-shape"),
        ((), "uint8", "wrong-shape"),
        ((9,), "int8", "wrong-dtype"),
    ],
)
def test_a_block_that_may_be_shorter_is_never_longer(
    shape: tuple[int, ...], dtype: str, code: str | None
) -> None:
    block = ExpectedBlock("model", "w", (9,), "uint8", at_most=True)
    contract = Contract((block,))
    assert contract.describe()[0] == "model: 1 tensor, at most 9 bytes" and contract.max_bytes() == 9
    found = ExpectedBlock("model", "w", shape, dtype)
    if code is None:
        contract.check([found], {})
    else:
        with pytest.raises(Problem) as refused:
            contract.check([found], {})
        assert refused.value.code == code
