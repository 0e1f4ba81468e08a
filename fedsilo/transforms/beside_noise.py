"""What silos would tell of their examples beside the tensors that noise is added to, by whomever."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.learning.catalogue import ARCHITECTURES
from fedsilo.methods.method import Method


def check_hidden(method: Method, batch_norm: str) -> Iterator[Finding]:
    """What silos would tell of their examples beside the tensors that noise is added to.

    :param batch_norm: why a network must not have it, a clause.
    """
    architecture = ARCHITECTURES.get(method.spec.model.name)
    if architecture is not None and architecture.batch_norm:
        remedy = "use a network with GroupNorm in its place, such as mnist_cnn, or without, such as lenet"
        yield "spec.model.name", method.spec.model.name, f"has BatchNorm, {batch_norm}", remedy
    spec = method.spec
    if spec.evaluation.test_dataset is None and method.models.scored:
        problem = (
            "is not set, and scores of silos on their own examples have no mechanism that makes them private"
        )
        remedy = "name a test set among spec.aggregator.datasets"
        yield "spec.evaluation.testDataset", ABSENT_VALUE, problem, remedy
    if spec.data.preprocessing is not None:
        problem = "takes statistics of the silos' examples, which have no mechanism that makes them private"
        given = spec.data.preprocessing.model_dump(by_alias=True)
        yield "spec.data.preprocessing", given, problem, "prepare the data beforehand, and remove it"
    if spec.data.check is not None:
        problem = "has silos tell findings about their examples, which no mechanism makes private"
        yield "spec.data.check", spec.data.check, problem, "remove it; run fedsilo doctor in the silo instead"
