"""An API server says of two sections that contradict each other what validation says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from fedsilo.validation import validate
from hack.crd_rule import Rule
from hack.crd_rules import RULES
from tests.unit.operator.job.objects import manifest

HELD_DATASETS = {"datasets": [{"name": "held", "loader": "sklearn:digits"}]}
CROP = {"rounds": 3, "augmentation": {"crop": 4}}
CONTRADICTIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (".participation.minSilos", {"participation": {"minSilos": 3}}),
    (".participation.minSilos", {"participation": {"minSilos": 2, "fraction": 0.5}}),
    (".evaluation.testDataset", {"evaluation": {"testDataset": "absent"}}),
    (".aggregation.publicDataset", {"aggregation": {"publicDataset": "absent"}}),
    (
        ".aggregation.publicDataset",
        {
            "aggregation": {"publicDataset": "held"},
            "evaluation": {"testDataset": "held"},
            "aggregator": HELD_DATASETS,
        },
    ),
    (
        ".data.validationFraction",
        {"data": {"dataset": "scans", "classes": 10, "inputShape": [64], "validationFraction": 0}},
    ),
    (".data.inputShape", {"training": CROP}),
    (
        ".training.augmentation.crop",
        {"training": CROP, "data": {"dataset": "scans", "classes": 10, "inputShape": [1, 4, 4]}},
    ),
)
"""Field at fault, and sections of a job, for each rule of a job's specification in turn."""


def words(rule: Rule) -> list[str]:
    """What a rule says, in pieces between the values that it computes."""
    text = rule.text.removeprefix("0: ")
    if rule.computed:
        text = "".join(re.findall(r"'([^']*)'", text.partition(".format(")[0])).removeprefix("%d: ")
    return [piece for piece in re.split(r"%[ds]|^: |; ", text) if piece.strip(": ")]


def test_every_rule_has_a_case() -> None:
    assert [field for field, _ in CONTRADICTIONS] == [rule.field for rule in RULES["FederatedJobSpec"]]


@pytest.mark.parametrize("number", range(len(CONTRADICTIONS)))
def test_a_rule_of_two_sections_has_the_words_of_validation(number: int) -> None:
    rule, (field, sections) = RULES["FederatedJobSpec"][number], CONTRADICTIONS[number]
    said = [
        f"{fault.problem}; {fault.remedy}"
        for fault in validate([manifest(**sections)])
        if fault.path == f"spec{field}"
    ]
    pieces = words(rule)
    assert pieces
    assert any(all(piece.removeprefix(": ") in line for piece in pieces) for line in said), (pieces, said)
