"""The CustomResourceDefinitions say what the models say. What an API server makes of them is tried in tests/cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsilo.api.job import ParticipationSpec
from fedsilo.api.training import TrainingSpec
from hack.crd_rules import RULES, SAMPLED_SILOS, choice
from hack.crd_schemas import structural_schema
from hack.crds import RESOURCES, Resource, definition, files, main
from tests.paths import ROOT
from tests.unit.api.manifests import DIGITS
from tests.unit.hack.cel import filled_value, holds

CRDS = ROOT / "manifests" / "crds"

Schema = dict[str, Any]


def root(resource: Resource) -> Schema:
    (version,) = definition(resource)["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def parts(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside one, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from parts(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from parts(schema[inner], f"{path}[]")


def find(schema: Schema, path: str) -> Schema:
    return next(part for place, part in parts(schema) if place == path)


JOB, SILO, AGENT = (root(resource) for resource in RESOURCES)


def test_files_are_not_stale() -> None:
    written = {
        path.name: path.read_text() for path in CRDS.glob("*.yaml") if path.name != "kustomization.yaml"
    }
    assert written == files(), "manifests/crds/ is stale: run make crds"


def test_writing_into_a_directory(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files()


def test_kustomization_has_every_file() -> None:
    listed = yaml.safe_load((CRDS / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == set(files())


@pytest.mark.parametrize("name", files())
def test_size(name: str) -> None:
    assert len(files()[name]) < 120_000


@pytest.mark.parametrize("schema", [JOB, SILO, AGENT], ids=["job", "silo", "agent"])
def test_everything_is_structural_bounded_and_described(schema: Schema) -> None:
    for path, part in parts(schema["properties"]["spec"]):
        free = part.get("x-kubernetes-int-or-string") or part.get("x-kubernetes-preserve-unknown-fields")
        assert free or part["type"] in ("object", "array", "string", "integer", "number", "boolean"), path
        assert not part.keys() & {"$ref", "title", "const", "allOf", "oneOf", "anyOf", "propertyNames"}, path
        assert part.get("additionalProperties") not in (True, False), path
        if "description" not in part:
            assert path.endswith("[]") or "esources." in path, path
        match part.get("type"):
            case "array":
                assert part["maxItems"] <= 1000, path
            case "string":
                choices = "enum" in part or "x-kubernetes-validations" in part
                assert choices or part["maxLength"] <= 65536, path
            case "object" if "properties" not in part:
                assert part["maxProperties"] <= 100, path


def test_fields() -> None:
    assert find(JOB, ".spec.training.rounds") == {
        "description": "Number of rounds of training; 0 calibrates spec.model.initialWeights by a method that can.",
        "minimum": 0,
        "maximum": 10000,
        "type": "integer",
    }
    assert find(JOB, ".spec.training.optimizer.learningRate") == {
        "description": "Step size before schedule and warm-up.",
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1000,
        "default": 0.01,
    }
    assert find(JOB, ".spec.training.schedule")["enum"] == ["constant", "cosine", "exponential"]
    assert find(JOB, ".spec.method.config")["x-kubernetes-preserve-unknown-fields"] is True
    assert find(JOB, ".spec.aggregator.storage.size") == {
        "description": "Size of the claim.",
        "pattern": r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "maxLength": 32,
        "default": "10Gi",
    }
    assert set(find(SILO, ".spec.agent.resources")["properties"]) == {"requests", "limits"}


@pytest.mark.parametrize(("schema", "path"), [(JOB, ".spec.data"), (AGENT, ".spec.job.spec.data")])
def test_classes_are_a_number_or_a_list(schema: Schema, path: str) -> None:
    """Only `x-kubernetes-preserve-unknown-fields` leaves a field without a type, and CEL sees no such field."""
    found = find(schema, f"{path}.classes")
    assert found.pop("description")
    assert found == {
        "x-kubernetes-preserve-unknown-fields": True,
        "minimum": 2,
        "maximum": 100_000,
        "minItems": 2,
        "maxItems": 100_000,
        "nullable": True,
    }
    # Learning tasks such as regression have none; the operator refuses a classification that says none.
    assert "classes" not in find(schema, path)["required"]
    for _, part in parts(schema):
        assert not [rule for rule in part.get("x-kubernetes-validations", ()) if "classes" in rule["rule"]]


def test_null_is_permitted_where_the_model_permits_it() -> None:
    nullable = {path for path, part in parts(JOB) if part.get("nullable")}
    assert {".spec.silos.selector", ".spec.participation.minSilos", ".spec.aggregation.weights"} <= nullable
    assert not {".spec", ".spec.silos", ".spec.training.rounds", ".spec.silos.refs"} & nullable
    for _, part in parts(JOB):
        assert not (part.get("nullable") and "enum" in part)
        assert part.get("default", "") is not None


def test_defaults_stand_where_they_belong() -> None:
    assert find(JOB, ".spec.aggregator")["default"] == {}
    assert find(JOB, ".spec.participation.roundDeadline")["default"] == "10m"
    assert "default" not in find(JOB, ".spec.participation.minSilos")
    assert not [path for path, part in parts(JOB["properties"]["status"]) if "default" in part]


@pytest.mark.parametrize(
    ("schema", "path", "key"),
    [
        (JOB, ".spec.silos.refs", "name"),
        (JOB, ".spec.aggregator.datasets", "name"),
        (JOB, ".status.conditions", "type"),
        (JOB, ".status.silos", "name"),
        (SILO, ".spec.datasets", "name"),
        (SILO, ".spec.policy.approvals", "job"),
        (SILO, ".status.conditions", "type"),
        (AGENT, ".spec.job.spec.silos.refs", "name"),
        (AGENT, ".status.conditions", "type"),
    ],
)
def test_lists_of_named_entries_are_merged_by_name(schema: Schema, path: str, key: str) -> None:
    found = find(schema, path)
    assert (found["x-kubernetes-list-type"], found["x-kubernetes-list-map-keys"]) == ("map", [key])
    assert key in found["items"]["required"]


@pytest.mark.parametrize(
    "path",
    [".spec.job", ".spec.trust", ".spec.route", ".status.proposal", ".status.decision", ".status.receipts"],
)
def test_what_one_writer_writes_together_has_one_owner(path: str) -> None:
    assert find(AGENT, path)["x-kubernetes-map-type"] == "atomic"


def test_no_part_of_what_several_write_is_whole() -> None:
    """Silos are edited by people and tools; a job's status has two writers."""
    assert [
        path for schema in (JOB, SILO) for path, part in parts(schema) if "x-kubernetes-map-type" in part
    ] == []


def test_every_rule_is_used_and_has_words() -> None:
    written = [
        rule["rule"]
        for schema in (JOB, SILO, AGENT)
        for _, part in parts(schema)
        for rule in part.get("x-kubernetes-validations", ())
    ]
    for rules in RULES.values():
        for rule in rules:
            assert rule.holds in written
            assert "; " in rule.text


@pytest.mark.parametrize(
    ("values", "known"), [(["a"], "use a"), (["a", "b"], "use a or b"), (["a", "b", "c"], "use a, b or c")]
)
def test_a_choice_says_what_is_known(values: list[str], known: str) -> None:
    assert choice(values).text == f"is not a known choice; {known}"


def test_columns_name_fields_that_there_are() -> None:
    for resource in RESOURCES:
        known = {path for path, _ in parts(root(resource))} | {".metadata.creationTimestamp"}
        for column in resource.columns:
            path = column.path.partition("[")[0]
            assert path in known or path.rpartition(".")[0] == ".status.metrics"


def test_what_cannot_be_expressed_is_an_error() -> None:
    with pytest.raises(KeyError):
        structural_schema({"$ref": "#/$defs/Unknown"}, {})


@given(st.integers(1, 10_000), st.integers(1, 1000))
def test_the_sample_is_the_same_in_cel(ten_thousandths: int, silos: int) -> None:
    """In doubles, as an API server computes, and in decimals, as the model does."""
    fraction = ten_thousandths / 10_000
    python = SAMPLED_SILOS.replace("self.participation.fraction", "fraction").replace(
        "self.silos.refs.size()", "silos"
    )
    computed = eval(python, {"fraction": fraction, "silos": silos, "double": float, "int": int})
    assert computed == ParticipationSpec(fraction=fraction).sample_size(silos)


@pytest.mark.parametrize(("schema", "path"), [(JOB, ".spec.training"), (AGENT, ".spec.job.spec.training")])
@pytest.mark.parametrize("steps", [None, 50])
def test_training_is_refused_by_an_api_server_where_the_model_refuses_it(
    schema: Schema, path: str, steps: int | None
) -> None:
    """The defaults, which it fills in before, are as if nothing were written."""
    training = find(schema, path)
    rules = [rule["rule"] for rule in training["x-kubernetes-validations"]]
    assert [
        training["properties"][field]["default"] for field in ("localEpochs", "minSteps", "warmupRounds")
    ] == [1, 1, 0]
    for passes, least, warmup in product((1, 2), (1, 2), (0, 3, 4)):
        written = {"localEpochs": passes, "minSteps": least, "warmupRounds": warmup, "rounds": 3}
        filled = filled_value({"localSteps": steps, **written}, training)
        taken = all(holds(rule, filled) for rule in rules)
        try:
            TrainingSpec.model_validate({"localSteps": steps, **written})
        except ValidationError:
            assert not taken
        else:
            assert taken


def test_digits_has_no_field_that_is_not_there() -> None:
    (given_,) = (item for item in yaml.safe_load_all(DIGITS) if item["kind"] == "FederatedJob")
    known = {path for path, _ in parts(JOB)}

    def paths(value: Any, path: str) -> Iterator[str]:
        yield path
        if isinstance(value, dict) and not path.endswith("config"):
            for name, item in value.items():
                yield from paths(item, f"{path}.{name}")
        elif isinstance(value, list):
            for item in value:
                yield from paths(item, f"{path}[]")

    assert set(paths(given_["spec"], ".spec")) <= known


@pytest.mark.parametrize(
    ("schema", "mutable"), [(JOB, {"suspend", "ttlSecondsAfterFinished"}), (AGENT, {"suspend"})]
)
def test_every_field_of_a_frozen_spec_has_a_rule_but_for_what_may_change(
    schema: Schema, mutable: set[str]
) -> None:
    spec = schema["properties"]["spec"]
    frozen = {rule["fieldPath"] for rule in spec["x-kubernetes-validations"] if "oldSelf" in rule["rule"]}
    assert frozen == {f".{name}" for name in spec["properties"].keys() - mutable}
