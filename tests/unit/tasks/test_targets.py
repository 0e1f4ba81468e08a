"""What a target may be: each fault is one line that names the item, its value and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.errors import DataInvalid
from fedsilo.tasks.interface import LearningTask
from tests.unit.tasks.specs import data_of, task_of

CLASSES = task_of("classification", data_of(4, classes=3))
LABELS = task_of("multilabel", data_of(4, classes=3))
MASKS = task_of("segmentation", data_of(1, 2, 2, classes=3), ignore=255)


def test_labels_are_int64() -> None:
    found = CLASSES.targets(np.array([0.0, 2.0]))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 2]


def test_labels_of_an_example_are_float32() -> None:
    found = LABELS.targets(np.array([[0, 1, 1]]))
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1, 1]]


def test_where_a_mask_says_nothing() -> None:
    found = MASKS.targets(np.array([[[[0, 1], [2, 255]]]], np.uint8))
    assert found.dtype == np.int64
    assert found.tolist() == [[[0, 1], [2, -100]]]


FAULTS: list[tuple[LearningTask, object, str]] = [
    (CLASSES, [0.0, np.nan], "item 1: label nan is not an integer; number classes from 0 to 2"),
    (
        CLASSES,
        [0, 3],
        "item 1: label 3 is not a class of the job (data.classes is 3); number classes from 0 to 2",
    ),
    (CLASSES, [[0], [1]], "labels have shape [1] for each example; give one class for each example"),
    (
        LABELS,
        [0, 1],
        "targets have shape [] for each example; give 0 or 1 for each label of spec.data.classes, shape",
    ),
    (LABELS, [[0, 1, 2]], "item 0: target 2 at [2] is not 0 or 1; write 1 where the label holds, else 0"),
    (LABELS, [[0, np.nan, 1]], "item 0: target nan at [1] is not 0 or 1"),
    (
        MASKS,
        np.zeros((1, 3, 2)),
        "targets have shape [3, 2] for each example; give a mask of the sides of spec.data.",
    ),
    (
        MASKS,
        [[[0, 3], [0, 0]]],
        "item 0: target 3 at [0, 1] is not a class of the job; number classes from 0 to 2, or",
    ),
    (MASKS, [[[0, 0.5], [0, 0]]], "item 0: target 0.5 at [0, 1] is not a class of the job"),
]


@pytest.mark.parametrize(("task", "values", "said"), FAULTS, ids=[said[:50] for *_, said in FAULTS])
def test_fault(task: LearningTask, values: object, said: str) -> None:
    with pytest.raises(DataInvalid) as caught:
        task.targets(np.asarray(values))
    assert str(caught.value).startswith(said)


def test_targets_that_all_say_nothing() -> None:
    with pytest.raises(DataInvalid, match=r"^every target is 255, .*; correct the targets$"):
        MASKS.targets(np.full((2, 2, 2), 255))
    tokens = task_of("language", data_of(3, classes=None), vocabulary=9)
    with pytest.raises(DataInvalid, match=r"^every target is -100, "):
        tokens.targets(np.full((2, 3), -100))
