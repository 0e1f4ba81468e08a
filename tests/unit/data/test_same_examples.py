"""Public examples and test images: which descriptions may have examples in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.same_examples import share_examples

ROOT = Path("/federation")
LOADER = "python:own.scans:read"


def share(loader: str, one: dict[str, Any], other: dict[str, Any], **more: dict[str, Any]) -> bool:
    """Whether two datasets of one loader may have examples in common, with these configurations, and with `test` and
    `public` as further sections."""
    pair = (("test", one), ("public", other))
    found = [
        DatasetSpec.model_validate({"name": name, "loader": loader, "config": config} | more.get(name, {}))
        for name, config in pair
    ]
    answer = share_examples(found[0], found[1], root=ROOT)
    assert share_examples(found[1], found[0], root=ROOT) is answer
    return answer


def part(scheme: str, index: int, **more: Any) -> dict[str, Any]:
    return {"partition": {"scheme": scheme, "silos": 4, "index": index} | more}


@pytest.mark.parametrize(
    ("loader", "one", "other"),
    [
        ("npz", {"path": "x.npz"}, {"path": "./a/../x.npz"}),
        ("npz", {"path": "x.npz"}, {"path": "/federation/x.npz", "labels": "again", "inMemory": True}),
        ("npy", {"features": "x.npy", "labels": "y.npy"}, {"features": "./x.npy", "labels": "z.npy"}),
        ("csv", {"path": "all", "target": "y"}, {"path": ["b.csv", "all/a.csv"], "target": "z"}),
        ("parquet", {"path": ["a", "b"], "target": "y"}, {"path": "b/", "target": "y", "columns": ["u"]}),
        ("imagefolder", {"path": "images"}, {"path": "images/", "size": [8, 8]}),
        (
            "torchvision:MNIST",
            {"path": "d", "split": "test"},
            {"path": "./d", "split": "test", "download": True},
        ),
        ("sklearn:digits", {"split": "test"}, {"split": "all"}),
        ("sklearn:digits", {"split": "test"}, {"split": "train", "seed": 1}),
        ("sklearn:digits", {"split": "test"}, {"split": "train", "testFraction": 0.5}),
        (LOADER, {"folders": ["a"], "left": 1}, {"folders": ["./a"], "left": 1}),
    ],
)
def test_the_same_files_are_the_same_examples_however_they_are_written(
    loader: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert share(loader, one, other)


@pytest.mark.parametrize(
    ("loader", "one", "other"),
    [
        ("npz", {"path": "x.npz"}, {"path": "y.npz"}),
        ("npz", {"path": "x.npz"}, {"path": "../x.npz"}),
        ("npz", {"path": "x.npz", "features": "x_test"}, {"path": "x.npz", "features": "x_train"}),
        ("imagefolder", {"path": "images"}, {"path": "images-2"}),
        ("torchvision:MNIST", {"path": "d", "split": "test"}, {"path": "d", "split": "train"}),
        ("sklearn:digits", {"split": "test"}, {"split": "train"}),
        (LOADER, {"folders": ["a"], "left": 1}, {"folders": ["a"], "left": 2}),
    ],
)
def test_other_files_and_other_parts_of_them_are_other_examples(
    loader: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not share(loader, one, other)


def test_only_two_parts_of_one_iid_partition_are_apart() -> None:
    """Another scheme goes by the labels, which of public examples are not always read."""

    def parts(test: dict[str, Any], public: dict[str, Any], path: str = "./x.npz") -> bool:
        return share("npz", {"path": "x.npz"}, {"path": path}, test=test, public=public)

    assert not parts(part("iid", 0), part("iid", 1))
    assert parts(part("iid", 0), part("iid", 0))
    assert parts(part("iid", 0), {}) and parts({}, part("iid", 0))
    assert parts(part("iid", 0), part("iid", 1, seed=1))
    assert parts(part("iid", 0), part("iid", 1, silos=5))
    assert parts(part("dirichlet", 0, config={"beta": 1.0}), part("dirichlet", 1, config={"beta": 1.0}))
    assert not parts(part("iid", 0), part("iid", 0), "y.npz")


def test_one_volume_has_the_same_files_under_the_names_of_both_datasets() -> None:
    def claims(test: str, public: str, path: str) -> bool:
        volumes = {
            name: {"volume": {"persistentVolumeClaim": claim}}
            for name, claim in (("test", test), ("public", public))
        }
        return share("npz", {"path": "test/x.npz"}, {"path": path}, **volumes)

    assert claims("scans", "scans", "public/x.npz")
    assert claims("scans", "crowd", "test/x.npz")
    assert not claims("scans", "scans", "public/y.npz")
    assert not claims("scans", "crowd", "public/x.npz")


def test_what_cannot_be_read_has_faults_of_its_own() -> None:
    assert not share("npz", {"path": ""}, {"path": ""})
