"""What a silo tells of its data before round 1: codes, places and counts that its policy permits, and no other text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedsilo.api.data import DataSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.arrays import Arrays
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.errors import DataInvalid
from fedsilo.readiness.announce import findings_of, unreadable_findings
from fedsilo.readiness.announced import (
    MAGNITUDES,
    MAX_MESSAGE,
    SUBJECT,
    TEXTS,
    AnnouncedFinding,
    FindingRules,
    announced_findings,
    describe_finding,
)
from fedsilo.readiness.facts import SiloData
from fedsilo.readiness.finding import CODES, SEVERITY
from fedsilo.readiness.statement import readiness_body, readiness_of
from tests.federate import job_spec

DATA = DataSpec(dataset="scans", classes=("cat", "dog", "owl"), input_shape=(3,))
SCHEMA = Schema(columns=(TableColumn("age", "number"), TableColumn("sex", "category", ("f", "m"))))
SMALL_CLASS_FINDING = AnnouncedFinding("ClassSmall", (0, 2), 2)
CONSTANT = AnnouncedFinding("FeatureConstant", (1,), 1)
COPIES = AnnouncedFinding("Duplicates", count=9)
ALL_FINDINGS = (SMALL_CLASS_FINDING, CONSTANT, COPIES, AnnouncedFinding("RangeUnusual"))
FULL_RULES = FindingRules(classes=True, features=True, minimum=5)


def test_every_code_has_a_severity_a_subject_and_a_text() -> None:
    assert CODES.keys() == SEVERITY.keys()
    assert TEXTS.keys() == CODES.keys() - {"SchemaDiffers", "ClassAbsent", "PolicyRefuses", "UnitsDiffer"}
    assert SUBJECT.keys() == TEXTS.keys() | {MAGNITUDES}


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (FULL_RULES, ALL_FINDINGS),
        # Which classes are small is a count of classes; how many examples are copies is one of examples.
        (
            FindingRules(classes=False, features=True, minimum=5),
            (CONSTANT, AnnouncedFinding("Duplicates"), ALL_FINDINGS[3]),
        ),
        (
            FindingRules(classes=True, features=False, minimum=5),
            (SMALL_CLASS_FINDING, AnnouncedFinding("FeatureConstant"), COPIES, ALL_FINDINGS[3]),
        ),
        (
            FindingRules(classes=True, features=True, minimum=10),
            (SMALL_CLASS_FINDING, CONSTANT, AnnouncedFinding("Duplicates"), ALL_FINDINGS[3]),
        ),
        (
            FindingRules(classes=False, features=False, minimum=1),
            (AnnouncedFinding("FeatureConstant"), AnnouncedFinding("Duplicates"), ALL_FINDINGS[3]),
        ),
    ],
)
def test_the_policy_decides_what_is_told(rules: FindingRules, told: tuple[AnnouncedFinding, ...]) -> None:
    assert rules.permitted_findings(ALL_FINDINGS) == told


def test_payload_kinds_are_the_permission() -> None:
    assert FindingRules.of(("model", "class_counts"), 3) == FindingRules(True, False, 3)
    assert FindingRules.of(("feature_statistics",), 3) == FindingRules(False, True, 3)


def test_what_was_written_is_read_again() -> None:
    body = readiness_body(
        SCHEMA, (*ALL_FINDINGS, *unreadable_findings(DataInvalid("row 3\nis empty; mend it")))
    )
    schema, findings = readiness_of(body, DATA)
    assert (schema, findings[:4]) == (SCHEMA, ALL_FINDINGS)
    assert findings[4].message == "row 3 is empty; mend it"
    assert readiness_of(readiness_body(None, ()), DATA) == (None, ())


@pytest.mark.parametrize(
    ("findings", "problem"),
    [
        (None, "findings: 'None' is not a list of at most 14"),
        ([{}], "an object with code"),
        ([{"code": "RangeUnusual", "value": "patient 17"}], "an object with code"),
        ([{"code": "Patient"}], "code: 'Patient' is not one of"),
        ([{"code": ["RangeUnusual"]}], "is not one of"),
        ([{"code": "RangeUnusual"}] * 2, "a list of codes, each once"),
        ([{"code": "RangeUnusual"}] * 15, "a list of at most 14"),
        ([{"code": "ClassSmall", "places": [3]}], "ascending numbers from 0 to 2"),
        ([{"code": "ClassSmall", "places": [True]}], "ascending numbers"),
        ([{"code": "ClassSmall", "places": [1, 0]}], "ascending numbers"),
        ([{"code": "ClassSmall", "places": [1, 1]}], "ascending numbers"),
        ([{"code": "ClassSmall", "places": "01"}], "a list of at most 4 numbers"),
        ([{"code": "FeatureConstant", "places": [0, 1, 2, 3, 4]}], "a list of at most 4 numbers"),
        ([{"code": "Duplicates", "places": [17]}], "is not empty"),
        ([{"code": "FeatureConstant", "count": 4}], "an integer from 0 to 3"),
        ([{"code": "RangeUnusual", "count": 1}], "an integer from 0 to 0"),
        ([{"code": "Duplicates", "count": -1}], "an integer from 0"),
        ([{"code": "Duplicates", "count": 1.5}], "an integer from 0"),
        ([{"code": "Duplicates", "message": "patient 17"}], "of Unreadable alone"),
        ([{"code": "Unreadable", "message": "two\nlines"}], "one line of"),
        ([{"code": "Unreadable", "message": "x" * (MAX_MESSAGE + 1)}], "one line of"),
    ],
)
def test_anything_else_is_refused(findings: Any, problem: str) -> None:
    with pytest.raises(DataInvalid, match=problem):
        announced_findings(findings, DATA)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"findings": [], "rows": 3}', b'{"schema": {}}'])
def test_another_statement_is_refused(body: bytes) -> None:
    with pytest.raises(DataInvalid, match="readiness: is"):
        readiness_of(body, DATA)


@pytest.mark.parametrize(
    ("finding", "place", "value"),
    [
        (SMALL_CLASS_FINDING, "class cat, owl", "fewer examples than the minimum of job and silo, or none"),
        (CONSTANT, "feature sex=f", "one value"),
        (AnnouncedFinding("FeatureConstant", (0, 1), 3), "feature age, sex=f, 1 more", "one value"),
        (AnnouncedFinding("FeatureConstant"), "some features", "one value"),
        (AnnouncedFinding("ValuesMissing", count=2), "2 features", "values are missing"),
        (COPIES, "examples", "9 copies of others"),
        (AnnouncedFinding("Duplicates"), "examples", "copies of others"),
        (AnnouncedFinding("Unreadable", message="item 3 is torn; mend it"), "dataset", "item 3 is torn"),
    ],
)
def test_findings_in_words(finding: AnnouncedFinding, place: str, value: str) -> None:
    told = describe_finding(finding, "a/north", DATA, SCHEMA)
    assert (told.silo, told.place, told.value, told.severity) == (
        "a/north",
        place,
        value,
        SEVERITY[finding.code],
    )
    if finding.code == "FeatureConstant":
        nameless = describe_finding(finding, "a/north", DATA, None)
        assert "sex" not in nameless.place


SPEC = job_spec("fedavg", 2, data={"classes": 3, "inputShape": [3], "check": "report"})


def findings_by_code(
    spec: FederatedJobSpec, features: np.ndarray, labels: np.ndarray
) -> dict[str, AnnouncedFinding]:
    cut = max(len(labels) - 5, 0)
    places = np.arange(len(labels))
    data = SiloData(
        "north",
        Arrays(features, labels),
        places[:cut],
        places[cut:],
        5,
        5,
        tells_counts=True,
        tells_features=True,
        only_silos_score=True,
    )
    return {finding.code: finding for finding in findings_of(spec, data)}


def test_a_silo_s_data_become_findings_without_a_number_of_a_class() -> None:
    features = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    features[:, 1] = 7
    features[:, 2] *= 1e5
    features[1], features[-1] = features[0], features[2]
    labels = np.array([0] * 38 + [1] * 2)
    told = findings_by_code(SPEC, features, labels)
    assert told == {
        # Class 1 has none to train on, and class 2 none at all: nobody learns which is which.
        "ClassSmall": AnnouncedFinding("ClassSmall", (1, 2), 2),
        "FeatureConstant": AnnouncedFinding("FeatureConstant", (1,), 1),
        "FeatureUnscaled": AnnouncedFinding("FeatureUnscaled"),
        MAGNITUDES: AnnouncedFinding(MAGNITUDES, magnitudes=(0, 3, 17)),
        "Duplicates": AnnouncedFinding("Duplicates", count=2),
        "ValidationLeaks": AnnouncedFinding("ValidationLeaks", count=1),
    }
    assert announced_findings([one.to_dict() for one in told.values()], SPEC.data) == tuple(told.values())
    few = findings_by_code(SPEC, features[36:], labels[36:])
    assert few["NoTrainingExamples"] == AnnouncedFinding("NoTrainingExamples")
    # One value in four examples would be those examples' value.
    assert "FeatureConstant" not in few


def test_values_are_in_no_statement() -> None:
    features = np.full((40, 3), 12345.5, np.float32)
    text = json.dumps(
        [one.to_dict() for one in findings_by_code(SPEC, features, np.zeros(40, np.int64)).values()]
    )
    assert "12345" not in text
