"""A Silo template in a manifest: the silos that it stands for, and its faults, each once and in its own document."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml

import fedsilo
from fedsilo.cli.validate import summary
from tests.pages import blocks
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "research" / "clients.yaml"


@pytest.fixture
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(EXAMPLE.read_text()))


def test_it_is_the_silos_written_out(documents: list[dict[str, Any]]) -> None:
    template, job = documents
    template["spec"] |= {"count": 12, "policy": {"maxRounds": 30}}
    found = fedsilo.load_manifest(documents)
    partition = template["spec"]["datasets"][0]["partition"]
    written = [
        {
            "apiVersion": template["apiVersion"],
            "kind": "Silo",
            "metadata": template["metadata"] | {"name": f"client-{index:02}"},
            "spec": {
                "datasets": [
                    template["spec"]["datasets"][0] | {"partition": partition | {"silos": 12, "index": index}}
                ],
                "policy": {"maxRounds": 30},
            },
        }
        for index in range(12)
    ]
    assert found == fedsilo.load_manifest([*written, job])
    assert [str(silo) for silo in found.silos][::11] == ["research/client-00", "research/client-11"]


def test_refs_may_name_its_silos(documents: list[dict[str, Any]]) -> None:
    names = ["client-99", "client-03"]
    documents[1]["spec"]["silos"] = {"refs": [{"namespace": "research", "name": name} for name in names]}
    assert [silo.metadata.name for silo in fedsilo.load_manifest(documents).silos] == names


OWN_PART = {"scheme": "iid", "silos": 3, "index": 0}
PLACE = "manifest: document 1 (SiloTemplate client): "


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"count": None}, ["spec.count: null: is not a whole number; give the number of silos"]),
        ({"count": "9"}, ['spec.count: "9": is not a whole number; give the number of silos']),
        ({"count": 0}, ["spec.count: 0: is no possible number of silos; use 1 to 1000"]),
        ({"count": 1001}, ["spec.count: 1001: is no possible number of silos; use 1 to 1000"]),
        (
            {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]},
            [
                "spec.datasets[0].partition: is missing, so that every silo would hold the same examples; "
                "give its scheme, such as dirichlet"
            ],
        ),
        (
            {"datasets": [{"name": "digits", "loader": "sklearn:digits", "partition": OWN_PART}]},
            [
                "spec.datasets[0].partition.silos: 3: follows from the template's count; remove it",
                "spec.datasets[0].partition.index: 0: follows from the template's count; remove it",
            ],
        ),
        (
            {"datasets": [{"name": "digits", "loader": "npy", "partition": {"scheme": "iid"}}]},
            [f"spec.datasets[0].config.{field}: is missing; add it" for field in ("features", "labels")],
        ),
        ({"polcy": {}}, ["spec.polcy: {}: is not a known field; did you mean policy?"]),
    ],
)  # fmt: skip
def test_a_fault_is_said_once_with_the_templates_document(
    change: dict[str, Any], faults: list[str], documents: list[dict[str, Any]]
) -> None:
    documents[0]["spec"] |= change
    assert [fault.line() for fault in fedsilo.validate(documents)] == [PLACE + fault for fault in faults]


def test_a_template_without_a_count_or_a_spec_is_one(documents: list[dict[str, Any]]) -> None:
    without = deepcopy(documents)
    del without[0]["spec"]["count"]
    (line,) = map(str, fedsilo.validate(without))
    assert line == f"{PLACE}spec.count: is missing; give the number of silos"
    del without[0]["spec"]
    (line,) = map(str, fedsilo.validate(without))
    assert line.startswith(f"{PLACE}spec: is missing; ")


def test_documents_hold_what_json_holds(documents: list[dict[str, Any]]) -> None:
    documents[0]["spec"]["count"] = {1, 2}
    (line,) = map(str, fedsilo.validate(documents))
    assert line == (
        "manifest: document 1: has a value that JSON cannot hold (Object of type set is not JSON serializable); "
        "write plain strings, numbers, lists and mappings"
    )
    wrong: Any = [documents[1], 3]
    assert "manifest: document 2: 3: is not a mapping" in str(fedsilo.validate(wrong)[0])


def test_the_summary_names_the_first_of_them() -> None:
    assert "100: client-00, client-01," in summary(fedsilo.load_manifest(EXAMPLE))
    assert "client-19, 80 more" in summary(fedsilo.load_manifest(EXAMPLE))


def test_the_page_shows_the_example(documents: list[dict[str, Any]]) -> None:
    (shown,) = blocks("docs/manifests.md", "yaml")
    assert yaml.safe_load(shown) == documents[0]
