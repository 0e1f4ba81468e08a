"""Features that stay in their files are those that would be in memory, and what is wrong with them is named alike."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.data.sources import IN_MEMORY_BYTES, LazyFeatures, naming
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset, part
from tests.unit.data.test_bad_data import folders, refusal

__all__ = ["folders"]

RNG = np.random.RandomState(0)


def arrays_in_files(root: Path) -> dict[str, tuple[DatasetSpec, DataSpec]]:
    """A dataset of 12 items for each loader."""
    bytes_, labels = RNG.randint(0, 256, (12, 5, 4, 3)).astype(np.uint8), np.arange(12) % 3
    np.savez(root / "colour.npz", images=bytes_, labels=labels)
    np.savez(root / "doubles.npz", images=RNG.rand(12, 7), labels=labels)
    np.save(root / "x.npy", RNG.rand(12, 4, 5).astype(">f4"))
    np.save(root / "y.npy", labels)
    for item in range(12):
        folder = root / "photos" / f"class{labels[item]}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(bytes_[item]).save(folder / f"{item}.png")
    return {
        "npz of bytes": (dataset("npz", path="colour.npz"), data(3, 5, 4, classes=3)),
        "npz of doubles": (dataset("npz", path="doubles.npz"), data(7, classes=3)),
        "npy": (dataset("npy", features="x.npy", labels="y.npy"), data(1, 4, 5, classes=3)),
        "imagefolder": (dataset("imagefolder", path="photos"), data(3, 5, 4, classes=3)),
        "imagefolder, resized": (
            dataset("imagefolder", path="photos", size=[8, 8]),
            data(1, 8, 8, classes=3),
        ),
    }


def with_config(spec: DatasetSpec, **config: Any) -> DatasetSpec:
    return spec.model_copy(update={"config": {**spec.config, **config}})


def test_features_that_stay_in_their_files_are_those_held_in_memory(tmp_path: Path) -> None:
    for name, (spec, job) in arrays_in_files(tmp_path).items():
        for partition in (None, part("iid", 2, index=1)):
            spec = spec.model_copy(update={"partition": partition})
            held = load(with_config(spec, inMemory=True), job, root=tmp_path)
            stored = load(with_config(spec, inMemory=False), job, root=tmp_path)
            assert isinstance(held.features, np.ndarray), name
            assert isinstance(stored.features, LazyFeatures), name
            assert stored.features.shape == held.features.shape, name
            assert stored.features.dtype == held.features.dtype, name
            assert stored.features.nbytes == held.features.nbytes, name
            chosen = np.array([5, 0, 0, 3])
            assert stored.features.read(chosen).tobytes() == held.features[chosen].tobytes(), name
            assert np.array_equal(stored.take(chosen).features[1:, 0], held.features[chosen][1:, 0]), name
            assert np.array_equal(stored.features, held.features), name
            assert np.array_equal(stored.labels, held.labels), name


def test_what_is_in_memory_is_decided_by_its_size(tmp_path: Path) -> None:
    items = IN_MEMORY_BYTES // 2**20 + 1
    with (tmp_path / "x.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (items, 1024, 1024)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + items * 2**20)  # a hole
    np.save(tmp_path / "y.npy", np.zeros(items, int))
    large = load(dataset("npy", features="x.npy", labels="y.npy"), data(1, 1024, 1024), root=tmp_path)
    assert isinstance(large.features, LazyFeatures)
    assert large.features.nbytes > IN_MEMORY_BYTES
    assert not large.features[np.array([items - 1])].any()
    small = load(*arrays_in_files(tmp_path)["npz of bytes"], root=tmp_path)
    assert isinstance(small.features, np.ndarray)


def test_a_compressed_archive_is_held_in_memory_unless_it_shall_not(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((4, 2), np.float32), labels=[0, 1, 2, 0])
    message = refusal(dataset("npz", path="a.npz", inMemory=False), data(2, classes=3), tmp_path)
    assert "config.inMemory: 'images' of" in message
    assert message.endswith("write it with numpy.savez, or set config.inMemory to true")


def stored_features(root: Path, name: str) -> LazyFeatures:
    spec, job = arrays_in_files(root)[name]
    features = load(with_config(spec, inMemory=False), job, root=root).features
    assert isinstance(features, LazyFeatures)
    return features


def test_an_item_that_is_wrong_is_named_when_it_is_read(tmp_path: Path) -> None:
    values = np.ones((6, 2))
    values[4, 1] = np.nan
    np.savez(tmp_path / "a.npz", images=values, labels=[0, 1, 2, 0, 1, 2])
    arrays = load(dataset("npz", path="a.npz", inMemory=False), data(2, classes=3), root=tmp_path)
    part_of_it = arrays.take(np.array([1, 2, 4])).features
    assert isinstance(part_of_it, LazyFeatures)
    part_of_it.read(np.array([0, 1]))
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': item 4: features contain nan; remove or mend"):
        part_of_it.read(np.array([2, 0]))


def test_a_file_that_becomes_shorter_is_no_crash(tmp_path: Path) -> None:
    features = stored_features(tmp_path, "npy")
    os.truncate(tmp_path / "x.npy", (tmp_path / "x.npy").stat().st_size - 100)
    features.read(np.arange(10))
    with pytest.raises(
        DataInvalid, match=r"^dataset 'scans': item 10: '.*x\.npy' has become shorter than its"
    ):
        features.read(np.arange(12))


def test_an_image_that_is_damaged_or_gone_is_named_when_it_is_read(tmp_path: Path) -> None:
    features = stored_features(tmp_path, "imagefolder")
    (tmp_path / "photos" / "class0" / "0.png").write_bytes(b"not an image")
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': 'class0/0.png' cannot be decoded as an image"):
        features.read(np.array([0]))
    (tmp_path / "photos" / "class0" / "0.png").unlink()
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': "):
        features.read(np.array([0]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (dataset("npy", features="absent.npy", labels="y.npy"), "config.features: "),
        (dataset("npy", features="x.npy", labels="absent.npy"), "config.labels: "),
        (dataset("npy", features="y.txt", labels="y.npy"), "y.txt' cannot be read ("),
        (dataset("npy", features="x.npy", labels="y.txt"), "write a numeric array with numpy.save"),
        (dataset("npy", features="objects.npy", labels="y.npy"), "objects.npy' cannot be read ("),
        (dataset("npy", features="long.npy", labels="y.npy", inMemory=False), "long.npy' cannot be read ("),
        (dataset("npy", features="y.npy", labels="y.npy"), "features have dtype int64; give uint8"),
        (dataset("npy", features="x.npy", labels="short.npy", inMemory=False), "do not pair up; give one"),
    ],
)
def test_a_wrong_pair_of_files(tmp_path: Path, spec: DatasetSpec, message: str) -> None:
    arrays_in_files(tmp_path)
    (tmp_path / "y.txt").write_text("no array")
    np.save(tmp_path / "objects.npy", np.array([{}] * 12, dtype=object))
    np.save(tmp_path / "short.npy", np.zeros(11, int))
    with (tmp_path / "long.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 4, 5)}
        np.lib.format.write_array_header_1_0(file, header)
    assert message in refusal(spec, data(1, 4, 5, classes=3), tmp_path)


def test_an_array_in_another_order_is_read_whole(tmp_path: Path) -> None:
    values = np.asfortranarray(RNG.rand(6, 2).astype(np.float32))
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "y.npy", np.arange(6) % 3)
    arrays = load(dataset("npy", features="x.npy", labels="y.npy"), data(2, classes=3), root=tmp_path)
    assert np.array_equal(arrays.features, values)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "x.csv"),
            "give this process the right to read it",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.csv"), "see that it is there"),
        (OSError(errno.EIO, "Input/output error", "x.csv"), "see that it is there and its volume works"),
    ],
)
def test_the_remedy_of_what_cannot_be_read_is_that_of_the_system_error(error: OSError, remedy: str) -> None:
    with (
        pytest.raises(DataInvalid, match=rf"dataset 'd': 'x.csv' cannot be read \(.*\); {remedy}"),
        naming("d"),
    ):
        raise error
