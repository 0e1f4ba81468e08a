"""The check of a dataset's text, which needs neither data nor a learning library."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fedsilo.api.faults import ABSENT_VALUE
from fedsilo.data.catalogue import check_dataset, loader_config
from fedsilo.errors import ManifestInvalid
from tests.unit.data.specs import dataset, part


@pytest.mark.parametrize(
    ("loader", "config"),
    [
        ("sklearn:digits", {}),
        ("sklearn:digits", {"split": "all", "testFraction": 0.3, "seed": 4}),
        ("npz", {"path": "train.npz"}),
        ("imagefolder", {"path": "images", "size": [32, 32]}),
        ("torchvision:FashionMNIST", {"path": "cache", "download": True}),
        ("python:hospital.scans:load", {"anything": [1, 2]}),
    ],
)
def test_what_can_be_run_has_no_findings(loader: str, config: dict[str, Any]) -> None:
    assert check_dataset(dataset(loader, **config)) == []


@pytest.mark.parametrize(
    "loader", ["digits", "sklearn:iris", "torchvision:a:b", "python:module", "npz:file", "imagenet"]
)
def test_an_unknown_loader_lists_the_known_ones(loader: str) -> None:
    [(path, value, problem, remedy)] = check_dataset(dataset(loader))
    assert (path, value, problem) == ("loader", loader, "is not a known loader")
    for known in (
        "sklearn:digits",
        "npz",
        "imagefolder",
        "torchvision:<Dataset>",
        "python:<module>:<function>",
    ):
        assert known in remedy


@pytest.mark.parametrize(
    ("loader", "config", "expected"),
    [
        ("npz", {}, ("config.path", ABSENT_VALUE, "is missing", "add it")),
        (
            "npz",
            {"path": "a.npz", "label": "y"},
            ("config.label", "y", "is not a known field", "did you mean labels?"),
        ),
        (
            "sklearn:digits",
            {"testFraction": 1.0},
            ("config.testFraction", 1.0, "is too large", "use less than 1"),
        ),
        (
            "sklearn:digits",
            {"split": "valid"},
            ("config.split", "valid", "is not a known choice", "use train, test or all"),
        ),
        (
            "imagefolder",
            {"path": "i", "size": [32, "32"]},
            (
                "config.size[1]",
                "32",
                "is a string, not a whole number",
                "write a whole number without quotes",
            ),
        ),
    ],
)
def test_a_wrong_loader_configuration(
    loader: str, config: dict[str, Any], expected: tuple[str, object, str, str]
) -> None:
    assert check_dataset(dataset(loader, **config)) == [expected]


@pytest.mark.parametrize(
    ("scheme", "config", "path"),
    [
        ("labels", {}, "partition.config.labelsPerSilo"),
        ("labels", {"labelsPerSilo": 0}, "partition.config.labelsPerSilo"),
        ("dirichlet", {"beta": 0}, "partition.config.beta"),
        ("dirichlet", {"beta": "0.5"}, "partition.config.beta"),
        ("creff", {"imbalance": 0.5}, "partition.config.imbalance"),
        ("creff", {"long_tail": False}, "partition.config.long_tail"),
        ("map", {"variant": "real-world"}, "partition.config.variant"),
        ("fedbr", {"prior": "paper"}, "partition.config.prior"),
        ("iid", {"beta": 1}, "partition.config.beta"),
    ],
)
def test_a_wrong_partition_configuration(scheme: str, config: dict[str, Any], path: str) -> None:
    findings = check_dataset(dataset("sklearn:digits", part(scheme, 2, **config)))
    assert [finding[0] for finding in findings] == [path]


def test_a_dataset_may_have_several_findings_and_loading_refuses_them_by_name() -> None:
    wrong = dataset("npz", part("dirichlet", 2, beta=-1), path="")
    assert [finding[0] for finding in check_dataset(wrong)] == ["config.path", "partition.config.beta"]
    with pytest.raises(
        ManifestInvalid, match=r"dataset 'scans': partition.config.beta: -1: is too small; use more than 0"
    ):
        loader_config(wrong)


def test_catalogue_and_partitions_import_nothing_heavy() -> None:
    modules = "fedsilo.data.catalogue, fedsilo.data.partitions, fedsilo.data.split"
    code = f"import sys, {modules}; print({{'torch', 'sklearn', 'PIL'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
