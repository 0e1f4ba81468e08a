"""What a job with differential privacy of examples or persons asks for that nothing makes private."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.differential_privacy import DifferentialPrivacySpec
from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.methods.differential_privacy import FIELD, uncovered_payloads
from fedsilo.methods.method import Method
from fedsilo.tasks.registry import kind_of, weighs_classes
from fedsilo.transforms.beside_noise import check_hidden

TASKS = frozenset({"classification", "multilabel", "regression"})
"""Learning tasks whose loss is a mean over examples of what each has by itself."""


def check_examples(method: Method, private: DifferentialPrivacySpec) -> Iterator[Finding]:
    """What trains otherwise than by clipped gradients of single examples, and what would be told beside it."""
    yield from _check_payloads(method, private)
    spec = method.spec
    training = spec.training
    task = "classification" if spec.task is None else kind_of(spec.task)
    if task not in TASKS or weighs_classes(method.spec.task):
        problem = (
            "has a loss that is no mean over examples, and differential privacy clips the gradient of each"
        )
        name = spec.task.name if spec.task else ABSENT_VALUE
        yield "spec.task.name", name, problem, f"use {', '.join(sorted(TASKS))}, without classWeights"
    if training.precision != "float32":
        problem = "cannot clip the gradients of single examples"
        yield "spec.training.precision", training.precision, problem, "use float32"
    if spec.aggregation.weights == "samples":
        problem = "weighs silos by their numbers of samples, which have no mechanism that makes them private"
        yield "spec.aggregation.weights", "samples", problem, "write uniform, or remove it"
    if training.trainer is not None:
        problem = "is a training of the job's own, of which nothing says that it is private"
        yield "spec.training.trainer", training.trainer, problem, "remove it, or remove " + FIELD
    why = "with which no example has a gradient of its own, as differential privacy needs"
    yield from check_hidden(method, why)


def _check_payloads(method: Method, private: DifferentialPrivacySpec) -> Iterator[Finding]:
    without = uncovered_payloads(method)
    if without:
        problem = f"has no mechanism for {' and '.join(without)}, which silos send in {method.name}"
        given = private.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield FIELD, given, problem, "remove it, or use fedavg, fedconcat or ccvr"
    elif method.models.personal is not None:
        problem = f"covers what silos send, and in {method.name} also scores of silos' own models leave them"
        given = private.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield FIELD, given, problem, "remove it, or use fedavg, fedconcat or ccvr"
