"""Two names of the same data: told by descriptions, and on a machine by what is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.same_examples import of_the_same_data

ROOT = Path("/data")
CLAIM = {"volume": {"persistentVolumeClaim": "scans"}}


def dataset(name: str, loader: str, config: dict[str, Any], **more: Any) -> DatasetSpec:
    return DatasetSpec.model_validate({"name": name, "loader": loader, "config": config} | more)


def same_data_pairs(*datasets: DatasetSpec, root: Path = ROOT, here: bool = False) -> list[tuple[str, str]]:
    return list(of_the_same_data(datasets, root=root, here=here))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("npz", {"path": "x.npz"}), ("npz", {"path": "./y/../x.npz", "features": "others"})),
        (("npz", {"path": "x.npy"}), ("npy", {"features": "x.npy", "labels": "y.npy"})),
        (("imagefolder", {"path": "all"}), ("imagefolder", {"path": "all/north"})),
        (("csv", {"path": "t.csv", "target": "a"}), ("csv", {"path": "/data/t.csv", "target": "b"})),
        (("sklearn:digits", {}), ("sklearn:digits", {"split": "all"})),
        (("python:own.scans:read", {"a": 1}), ("python:own.scans:read", {"a": 1})),
    ],
)
def test_the_same_files_are_the_same_data_however_they_are_read(one: Any, other: Any) -> None:
    assert same_data_pairs(dataset("a", *one), dataset("b", *other)) == [("a", "b")]


def test_a_claim_is_the_same_data_wherever_it_is_mounted() -> None:
    one, other = (
        dataset("a", "npz", {"path": "a/x.npz"}, **CLAIM),
        dataset("b", "npz", {"path": "b/x.npz"}, **CLAIM),
    )
    assert same_data_pairs(one, other) == [("a", "b")]
    others = {"volume": {"persistentVolumeClaim": "others"}}
    assert same_data_pairs(one, dataset("b", "npz", {"path": "b/x.npz"}, **others)) == []
    assert same_data_pairs(one, dataset("b", "npz", {"path": "b/y.npz"}, **CLAIM)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("npz", {"path": "x.npz"}), ("npz", {"path": "y.npz"})),
        (("sklearn:digits", {"split": "train"}), ("sklearn:digits", {"split": "test"})),
        (("sklearn:digits", {}), ("python:own.scans:read", {})),
        (("python:own.scans:read", {"a": 1}), ("python:own.scans:read", {"a": 2})),
        (
            ("torchvision:MNIST", {"path": "d", "split": "train"}),
            ("torchvision:MNIST", {"path": "d", "split": "test"}),
        ),
        (("npz", {"path": "x.npz"}), ("npz", {"path": "x.npz", "unknown": 1})),
    ],
)
def test_other_files_and_other_splits_are_other_data(one: Any, other: Any) -> None:
    assert same_data_pairs(dataset("a", *one), dataset("b", *other)) == []


def test_parts_of_one_iid_partition_have_no_example_in_common() -> None:
    parts = [
        dataset(name, "sklearn:digits", {}, partition={"scheme": "iid", "silos": 2, "index": index})
        for index, name in enumerate("ab")
    ]
    assert same_data_pairs(*parts) == []


@pytest.mark.parametrize("other", ["link.npz", "hard.npz", "folder/x.npz", "again/x.npz"])
def test_on_a_machine_links_and_other_names_of_a_file_are_followed(tmp_path: Path, other: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.npz").touch()
    (tmp_path / "link.npz").symlink_to("real/x.npz")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "again").symlink_to(tmp_path / "folder")
    os.link(tmp_path / "real" / "x.npz", tmp_path / "hard.npz")
    pair = dataset("a", "npz", {"path": "real/x.npz"}), dataset("b", "npz", {"path": other})
    assert same_data_pairs(*pair, root=tmp_path) == []
    assert same_data_pairs(*pair, root=tmp_path, here=True) == [("a", "b")]
    assert same_data_pairs(*reversed(pair), root=tmp_path, here=True) == [("b", "a")]


def test_on_a_machine_a_folder_holds_what_lies_in_it_and_what_is_not_there_goes_by_its_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "all" / "north").mkdir(parents=True)
    (tmp_path / "copy").mkdir()
    (tmp_path / "link").symlink_to("all")
    (tmp_path / "loop").symlink_to("loop")

    def pair(one: str, other: str) -> list[tuple[str, str]]:
        folders = [dataset(name, "imagefolder", {"path": path}) for name, path in (("a", one), ("b", other))]
        return same_data_pairs(*folders, root=tmp_path, here=True)

    assert pair("link", "all/north") == [("a", "b")]
    assert pair("all", "copy") == []
    assert pair("gone", "gone/north") == [("a", "b")]
    assert pair("gone", "lost") == []
    assert pair("loop", "all") == []
