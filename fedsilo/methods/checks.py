"""Whether a job is one that its method is made for: faults that follow from what the method declares."""

from __future__ import annotations

from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.api.text import count_text
from fedsilo.methods.components.post_training import base_method, is_calibration_only
from fedsilo.methods.method import Method
from fedsilo.tasks.interface import OWN_TASK_NAME
from fedsilo.tasks.registry import DEFAULT, TASKS, kind_of, weighs_classes


def check_task(method: Method) -> list[Finding]:
    """The fault of a learning task that the method has no meaning for, or of class weights that no loss would have."""
    task = method.spec.task or DEFAULT
    kind = kind_of(task)
    if kind in method.tasks.names:
        return _check_class_weights(method)
    if kind != OWN_TASK_NAME and kind not in TASKS:
        return []  # which has its own fault
    able = [name for name in TASKS if name in method.tasks.names]
    problem = f"has no meaning for method {method.name}, because {method.tasks.reason}"
    remedy = f"use {' or '.join(able)}, or another method such as fedavg"
    return [("spec.task.name", task.name, problem, remedy)]


def _check_class_weights(method: Method) -> list[Finding]:
    if not weighs_classes(method.spec.task) or method.tasks.learned or len(method.tasks.names) > 1:
        return []
    problem = f"has no meaning for method {method.name}, which has a loss of its own"
    remedy = "remove it, or use another method such as fedavg"
    return [("spec.task.config.classWeights", "balanced", problem, remedy)]


def check_training(method: Method) -> list[Finding]:
    """Faults of the job's training, of which the method is asked that trains the model."""
    trains = base_method(method)
    found = [*_check_examples(trains), *_check_trainer(trains)]
    if is_calibration_only(trains):
        return found  # no step is taken, of whatever kind
    return [*_check_rounds(trains), *found, *_check_optimizer(trains), *_check_precision(trains)]


def _check_rounds(method: Method) -> list[Finding]:
    if method.spec.training.rounds:
        return []
    problem = f"is too small: {method.name} has nothing to do without training"
    return [("spec.training.rounds", 0, problem, "use 1 or more")]


def _check_examples(method: Method) -> list[Finding]:
    spec = method.spec
    fewest, minimum = method.training.min_examples_per_update(spec), spec.privacy.min_samples_per_update
    if fewest is None or fewest >= minimum:
        return []
    problem = (
        f"is too small: what a silo sends in {method.name} may follow from {count_text(fewest, 'example')}, fewer than "
        f"{minimum}"
    )
    remedy = "use larger batches, or localEpochs or more localSteps where the job counts steps"
    return [("spec.training.batchSize", spec.training.batch_size, problem, remedy)]


def _check_trainer(method: Method) -> list[Finding]:
    trainer, field = method.spec.training.trainer, "spec.training.trainer"
    if trainer is None:
        return []
    if not trainer.startswith(PYTHON) or python_reference(trainer) is None:
        remedy = "write python:package.module:function, for example python:hospital.training:train"
        return [(field, trainer, "does not name a Python function", remedy)]
    if method.training.accepts_trainer:
        return []
    problem = f"has no meaning in {method.name}, whose silos train with a loss or steps of its own"
    return [(field, trainer, problem, "remove it, or use a method such as fedavg")]


def _check_optimizer(method: Method) -> list[Finding]:
    name, able = method.spec.training.optimizer.name, method.training.optimizers
    if name in able:
        return []
    problem = f"has no meaning in {method.name}, which reckons with steps along the gradient"
    return [("spec.training.optimizer.name", name, problem, f"use {' or '.join(sorted(able))}")]


def _check_precision(method: Method) -> list[Finding]:
    precision, why = method.spec.training.precision, method.training.refuses_float16
    if precision != "float16" or why is None:
        return []
    problem = f"has no meaning in {method.name}, {why}"
    return [("spec.training.precision", precision, problem, "use bfloat16 or float32")]


def check_public_data(method: Method) -> list[Finding]:
    """The fault of a job that names no public dataset where the method learns from one, or names it for nothing."""
    named, field = method.spec.aggregation.public_dataset, "spec.aggregation.publicDataset"
    learns, name = method.public_data, base_method(method).name
    if learns is not None and named is None:
        problem = f"is not set, and method {name} learns at the aggregator from public {learns}"
        return [
            (field, ABSENT_VALUE, problem, "name one of spec.aggregator.datasets that is not the test set")
        ]
    if learns is None and named is not None:
        problem = f"has no meaning for method {name}, which reads no data at the aggregator"
        return [(field, named, problem, "remove it, or use another method, such as feddf")]
    return []


def check_validation(method: Method) -> list[Finding]:
    """The fault of a job that has models to score, and no examples for that."""
    spec = method.spec
    if not method.models.scored or spec.evaluation.test_dataset or spec.data.validation_fraction != 0:
        return []
    problem = "leaves the silos nothing to evaluate on"
    remedy = "hold a part out, such as 0.1, or name a spec.evaluation.testDataset"
    return [("spec.data.validationFraction", 0, problem, remedy)]


def check_checkpoints(method: Method) -> list[Finding]:
    """The fault of checkpoints further apart than the job is long."""
    wanted, rounds = method.spec.evaluation.checkpoints, sum(phase.rounds for phase in method.phases())
    if wanted is None or wanted <= rounds:
        return []
    problem = f"is more than the {rounds} rounds, so that no checkpoint would be kept"
    return [("spec.evaluation.checkpoints", wanted, problem, f"use {rounds} or less, or remove it")]
