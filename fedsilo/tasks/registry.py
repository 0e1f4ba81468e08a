"""Learning tasks by name, and the one of a job's own package, `python:module:Task`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from fedsilo.api.data import DataSpec
from fedsilo.api.faults import Finding
from fedsilo.api.job import LearningTaskSpec
from fedsilo.api.messages import closest, faults_of
from fedsilo.api.python_import import import_user_code
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.tasks.classification import ClassificationTask
from fedsilo.tasks.interface import OWN_TASK_NAME, Answers, LearningTask
from fedsilo.tasks.language import LanguageTask
from fedsilo.tasks.multilabel import MultilabelTask
from fedsilo.tasks.regression import RegressionTask
from fedsilo.tasks.segmentation import SegmentationTask

TASKS: Mapping[str, type[LearningTask]] = {
    task.name: task
    for task in (ClassificationTask, MultilabelTask, RegressionTask, SegmentationTask, LanguageTask)
}

DEFAULT = LearningTaskSpec(name=ClassificationTask.name)
"""The task of a job that names none."""


def kind_of(spec: LearningTaskSpec | None) -> str:
    """What methods call the task: its name, or `own`."""
    name = (spec or DEFAULT).name
    return OWN_TASK_NAME if name.startswith(PYTHON) else name


def weighs_classes(spec: LearningTaskSpec | None) -> bool:
    """Whether the job has the task's loss weigh classes; of an own task that is its own business."""
    return (spec or DEFAULT).config.get("classWeights") is not None


def metrics_of(spec: LearningTaskSpec | None) -> tuple[str, ...]:
    """What a silo may say of a model that it scores, unless the job asks for more: default metrics and the loss.

    Of an own task it is the loss, for guard and operator do not import what is the job's own.
    """
    task = TASKS.get(kind_of(spec))
    return (*(task.metrics if task else ()), "loss")


def answers_of(spec: LearningTaskSpec | None, data: DataSpec) -> Answers | None:
    """What models of the job answer; None where its own task says it, or its settings are wrong."""
    task = TASKS.get(kind_of(spec))
    if task is None:
        return None
    try:
        return task(data, task.Config.model_validate((spec or DEFAULT).config)).answers
    except ValidationError:
        return None


def check_task(spec: LearningTaskSpec | None, data: DataSpec) -> list[Finding]:
    """Faults of the job's task: unknown name, wrong settings, data that it cannot be learned from.

    An own task is checked by form only; its package need not be installed where a job is written.
    """
    spec = spec or DEFAULT
    if spec.name.startswith(PYTHON):
        if python_reference(spec.name) is None:
            remedy = "write python:package.module:Task, for example python:hospital.tasks:Survival"
            return [("spec.task.name", spec.name, "does not name a Python class", remedy)]
        return []
    task = TASKS.get(spec.name)
    if task is None:
        known = [*TASKS, "python:package.module:Task"]
        return [("spec.task.name", spec.name, "is not a known learning task", closest(spec.name, known))]
    return _check(task, spec, data)


def bind(spec: LearningTaskSpec | None, data: DataSpec) -> LearningTask:
    """The task of a job, with its settings parsed.

    :raises ManifestInvalid: unknown, wrongly set, or of a package that is not installed.
    :raises MethodError: an own task that is none, or whose module does not load.
    """
    spec = spec or DEFAULT
    if findings := check_task(spec, data):
        raise ManifestInvalid(_text(findings))
    if not spec.name.startswith(PYTHON):
        task = TASKS[spec.name]
        return task(data, task.Config.model_validate(spec.config))
    own = _import(spec.name)
    if findings := _check(own, spec, data):
        raise ManifestInvalid(_text(findings))
    return own(data, own.Config.model_validate(spec.config))


def _check(task: type[LearningTask], spec: LearningTaskSpec, data: DataSpec) -> list[Finding]:
    try:
        config = task.Config.model_validate(spec.config)
    except ValidationError as invalid:
        where = ("spec", "task", "config")
        faults = faults_of(invalid, task.Config, file="", document="", under=where)
        return [(fault.path, fault.value, fault.problem, fault.remedy) for fault in faults]
    return task(data, config).check()


def _import(name: str) -> type[LearningTask]:
    remedy = "install its package in the images of aggregator and trainer"
    found = import_user_code(name, field="spec.task.name", remedy=remedy)
    if not (isinstance(found, type) and issubclass(found, LearningTask)):
        raise MethodError(
            f"spec.task.name: {name!r}: is no fedsilo.tasks.interface.LearningTask; derive it from that"
        )
    if undefined := sorted(found.__abstractmethods__):
        raise MethodError(f"spec.task.name: {name!r}: does not define {', '.join(undefined)}; define them")
    return found


def _text(findings: list[Finding]) -> str:
    return "\n".join(f"{path}: {value!r}: {problem}; {remedy}" for path, value, problem, remedy in findings)
