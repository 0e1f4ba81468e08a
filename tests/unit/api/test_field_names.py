"""A document names a field as an API server knows it, in camelCase; Python's own names are for Python."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.common import Fields
from fedsilo.api.loading import Fault
from fedsilo.validation import validate
from tests.unit.operator.job.objects import manifest


def faults_at(path: str, **sections: Any) -> list[Fault]:
    """What validation says of one field of a job with these sections."""
    return [fault for fault in validate([manifest(**sections)]) if fault.path == path]


@pytest.mark.parametrize(
    ("path", "near", "sections"),
    [
        ("spec.training.batch_size", "batchSize", {"training": {"rounds": 2, "batch_size": 16}}),
        (
            "spec.training.optimizer.learning_rate",
            "learningRate",
            {"training": {"rounds": 2, "optimizer": {"learning_rate": 0.1}}},
        ),
        ("spec.participation.min_silos", "minSilos", {"participation": {"min_silos": 1}}),
        (
            "spec.method.config.server_learning_rate",
            "serverLearningRate",
            {"method": {"name": "fedopt", "config": {"server_learning_rate": 0.1}}},
        ),
        (
            "spec.task.config.class_weights",
            "classWeights",
            {"task": {"name": "classification", "config": {"class_weights": "balanced"}}},
        ),
    ],
)
def test_a_python_name_is_no_field_of_a_document(path: str, near: str, sections: dict[str, Any]) -> None:
    (fault,) = faults_at(path, **sections)

    assert (fault.problem, fault.remedy) == ("is not a known field", f"did you mean {near}?")


def test_python_constructs_by_python_names() -> None:
    class OuterFields(Fields):
        inner_part: Fields = Fields()

    assert OuterFields(inner_part=Fields()) == OuterFields.model_validate({"innerPart": {}})
