"""What the charts share with the rest is that of the rest. What Helm makes of them is tried in tests/cluster/charts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.generate import (
    CHARTS,
    CRD_METADATA,
    LABELS,
    MARKER,
    ROOT,
    documented_values,
    files,
    template,
    with_models,
)
from fedsilo.api.silo import SiloAgentTemplate
from fedsilo.api.silo_policy import SiloPolicy
from fedsilo.process import version

NAMES = ("fedsilo", "fedsilo-silo")


def read(chart: str, name: str) -> Any:
    return yaml.safe_load((CHARTS / chart / name).read_text())


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_not_stale(path: Path) -> None:
    assert path.read_text() == files()[path], f"{path.name} is stale: run make charts"


@pytest.mark.parametrize("folder", ["crds", "admission"])
def test_nothing_is_left_of_manifests_that_are_gone(folder: str) -> None:
    there = set((CHARTS / "fedsilo" / "templates" / folder).iterdir())
    assert there <= files().keys()


@pytest.mark.parametrize("chart", NAMES)
def test_versions_are_those_of_the_package(chart: str) -> None:
    content = read(chart, "Chart.yaml")
    assert content["version"] == content["appVersion"] == version().split()[-1]


@pytest.mark.parametrize("chart", NAMES)
def test_the_schema_has_every_value_and_no_other(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    assert schema["properties"].keys() == read(chart, "values.yaml").keys()
    assert set(schema["required"]) == read(chart, "values.yaml").keys()


def test_defaults_are_those_of_the_models() -> None:
    values = read("fedsilo-silo", "values.yaml")
    assert SiloPolicy.model_validate(values["policy"]) == SiloPolicy()
    assert SiloAgentTemplate.model_validate(values["agent"]) == SiloAgentTemplate()


def test_every_field_of_agent_and_policy_is_a_value() -> None:
    values = read("fedsilo-silo", "values.yaml")
    for model, given in ((SiloAgentTemplate, values["agent"]), (SiloPolicy, values["policy"])):
        fields = {field.alias or name for name, field in model.model_fields.items()}
        assert given.keys() == fields - {"approvals"}


def test_models_replace_earlier_definitions() -> None:
    content = json.loads(with_models('{"title": "x", "$defs": {"Old": {}}}'))
    assert content["title"] == "x"
    assert "Old" not in content["$defs"]
    policy = content["$defs"]["SiloPolicy"]
    assert "approvals" not in policy["properties"]
    assert policy["properties"]["maxRounds"]["type"] == ["integer", "null"]
    assert policy["properties"]["maxRounds"]["minimum"] == 1
    assert "default" not in policy["properties"]["maxRounds"]
    resources = content["$defs"]["SiloAgentTemplate"]["properties"]["resources"]
    assert resources["properties"].keys() == {"requests", "limits"}
    assert resources["additionalProperties"] is False


def test_templates_have_labels_at_every_object_and_nowhere_else() -> None:
    manifest = "metadata:\n  name: a\nspec:\n  metadata:\n    name: x\n---\nmetadata:\n  name: b\n"
    made = template(manifest, LABELS)
    assert made.count("labels:") == 2
    assert made.replace(LABELS, "") == manifest
    assert template(manifest, CRD_METADATA).count("fedsilo.crd.metadata") == 2


def test_a_manifest_that_helm_would_evaluate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"contains \{\{"):
        template("description: use {{ x }}", LABELS)


def test_values_have_the_comment_above_them() -> None:
    text = "# One.\n# Two.\na: 1\n\n# Not about b.\n\nb:\n  # Three.\n  c: {d: []}\n"
    assert [(value.path, value.default, value.meaning) for value in documented_values(text)] == [
        ("a", 1, "One. Two."),
        ("b.c", {"d": []}, "Three."),
    ]


@pytest.mark.parametrize("text", ["a: 1", "a: {}", "a:\n  # One.\n  b: 1\n  c: 2"])
def test_a_value_without_comment_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError, match="has no comment"):
        documented_values(text)


@pytest.mark.parametrize("chart", NAMES)
def test_readmes_are_written_by_hand_above_the_marker(chart: str) -> None:
    by_hand, _, table = (CHARTS / chart / "README.md").read_text().partition(MARKER)
    assert by_hand.startswith(f"# The chart {chart}\n")
    assert table.count("\n| `") == len(documented_values((CHARTS / chart / "values.yaml").read_text()))
