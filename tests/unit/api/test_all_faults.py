"""A fault of one stage hides none of another: syntax, fields, and what registries know are told of together."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.api import json_yaml
from fedsilo.api.faults import MAX_FAULTS
from fedsilo.validation import validate
from tests.unit.api.manifests import edited_manifest

Edit = tuple[str, str]

LOADER = (
    '{name: digits, loader: "sklearn:digits", config: {split: train}}',
    "{name: digits, loader: mystery}",
)
MISSPELT = ("localEpochs: 2", "localEpoch: 2")
METHOD = ("method: {name: fedavg, config: {}}", "method: {name: fedavgg, config: {}}")
TORN_DOCUMENT = ("policy: {payloadKinds: [model], maxBytes", "policy: {payloadKinds: [model, maxBytes")
"""A bracket that is left open, in the Silo in the middle of the file."""


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(*edits: Edit) -> list[str]:
    """Path and problem of each fault of the digits manifest with these edits."""
    Path("bad.yaml").write_text(edited_manifest(*edits))
    return sorted(f"{fault.path}: {fault.problem}" for fault in validate("bad.yaml"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MISSPELT, METHOD),
        (MISSPELT, LOADER),
        (("rounds: 10", 'rounds: "10"'), METHOD),
        (("rounds: 10", 'rounds: "10"'), ("{name: lenet, config", "{name: lenett, config")),
        (("inputShape: [1, 8, 8], ", ""), LOADER),
        (("fraction: 1.0", "fraction: half"), LOADER),
        (("batchSize: 32", "batchSize: 0"), ("testDataset: digits-test", "testDataset: absent")),
        (MISSPELT, ("payloadKinds: [model], maxBytes", "payloadKinds: [modle], maxBytes")),
    ],
)
def test_faults_of_two_stages_are_told_of_together(one: Edit, other: Edit) -> None:
    assert problems(one, other) == sorted([*problems(one), *problems(other)])
    assert len(problems(one, other)) == 2


@pytest.mark.parametrize(
    "resources",
    [
        "limits: {cpus: 2, memory: 5m}",
        "requests: {nvidia.com/gpu: 1}",
        "requests: {cpu: 2, cpus: 1}, limits: {cpu: 1}",
    ],
)
def test_faults_that_one_rule_finds_hide_none_of_another_stage(resources: str) -> None:
    one = ("aggregator:\n", f"aggregator:\n    resources: {{{resources}}}\n")

    assert problems(one, METHOD) == sorted([*problems(one), *problems(METHOD)])


@pytest.mark.parametrize("other", [MISSPELT, METHOD, ("rounds: 10", 'rounds: "10"')])
def test_a_torn_document_hides_no_fault_of_the_next(other: Edit) -> None:
    assert set(problems(TORN_DOCUMENT, other)) == {*problems(TORN_DOCUMENT), *problems(other)}


def test_lines_are_counted_on_after_a_torn_document() -> None:
    text = "a: [\n---\nb: 1\n---\n\nc: 'x\n"
    Path("bad.yaml").write_text(text)

    found = [fault for fault in validate("bad.yaml") if "YAML" in fault.problem]

    assert [fault.document for fault in found] == ["document 1", "document 3"]
    assert [fault.path.partition(",")[0] for fault in found] == ["line 2", "line 7"]


def test_torn_documents_without_end_are_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("bad.yaml").write_text("a: [\n---\n" * (10 * MAX_FAULTS))
    assert len(validate("bad.yaml")) <= MAX_FAULTS + 1

    monkeypatch.setattr(json_yaml, "MAX_TOKENS", 100)
    Path("bad.yaml").write_text("---\na: [" + "1," * 100 + "\n---\nb: [\n")
    assert [fault.problem.partition(" ")[0] for fault in validate("bad.yaml")] == ["holds"]
