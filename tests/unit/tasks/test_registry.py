"""Which learning tasks there are, and what a job is told that names another or sets one wrongly."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from fedsilo.api.faults import Finding
from fedsilo.errors import FedsiloError
from fedsilo.tasks.interface import EVERY_TASK, OWN_TASK_NAME, LearningTask
from fedsilo.tasks.registry import TASKS, bind, check_task, kind_of, metrics_of
from tests.unit.tasks.specs import data_of, task_spec


def test_names() -> None:
    assert {*TASKS, OWN_TASK_NAME} == EVERY_TASK
    assert kind_of(None) == "classification"
    assert kind_of(task_spec("python:a.b:C")) == OWN_TASK_NAME


def test_what_a_silo_may_say() -> None:
    assert metrics_of(None) == ("accuracy", "loss")
    assert metrics_of(task_spec("regression")) == ("mae", "loss")
    assert metrics_of(task_spec("python:a:B")) == ("loss",)


FAULTS: list[tuple[str, dict[str, object], tuple[int, ...], Finding]] = [
    (
        "regresion",
        {},
        (4,),
        ("spec.task.name", "regresion", "is not a known learning task", "did you mean regression?"),
    ),
    (
        "python:tasks",
        {},
        (4,),
        (
            "spec.task.name",
            "python:tasks",
            "does not name a Python class",
            "write python:package.module:Task, for example python:hospital.tasks:Survival",
        ),
    ),
    (
        "multilabel",
        {"classWeights": "even"},
        (4,),
        ("spec.task.config.classWeights", "even", "is not a known choice", "use balanced"),
    ),
    (
        "segmentation",
        {"ignore": 2},
        (1, 8, 8),
        ("spec.task.config.ignore", 2, "is a class", "use 3 or more, such as 255"),
    ),
    (
        "segmentation",
        {},
        (64,),
        (
            "spec.data.inputShape",
            [64],
            "is no image, which segmentation needs",
            "give [channels, height, width]",
        ),
    ),
]


@pytest.mark.parametrize(("name", "config", "shape", "finding"), FAULTS, ids=[f[-1][2] for f in FAULTS])
def test_fault(name: str, config: dict[str, object], shape: tuple[int, ...], finding: Finding) -> None:
    (found,) = check_task(task_spec(name, **config), data_of(*shape, classes=3))
    assert found == finding
    with pytest.raises(FedsiloError, match=finding[0].replace(".", r"\.")):
        bind(task_spec(name, **config), data_of(*shape, classes=3))


class UnfinishedTask(LearningTask):
    """An own task that forgot its loss."""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "python:own_tasks:Missing",
            "cannot be imported: module 'own_tasks' has no attribute 'Missing'; install",
        ),
        ("python:own_tasks_that_are_nowhere:Task", "cannot be imported: No module named"),
        ("python:own_tasks:number", "is no fedsilo.tasks.interface.LearningTask; derive it from that"),
        ("python:own_tasks:UnfinishedTask", "does not define loss, outputs, scores, targets; define them"),
    ],
)
def test_own_task_that_is_none(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_tasks")
    module.number, module.UnfinishedTask = 7, UnfinishedTask  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_tasks", module)
    assert check_task(task_spec(name), data_of(4, classes=3)) == []
    with pytest.raises(FedsiloError) as caught:
        bind(task_spec(name), data_of(4, classes=3))
    assert f"spec.task.name: {name!r}: {said}" in str(caught.value)
