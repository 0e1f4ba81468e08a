"""What a job that divides its model asks for that a method, or an evaluation, cannot do with the parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec, MethodSpec
from fedsilo.errors import FedsiloError
from fedsilo.methods import registry
from fedsilo.methods.method import Method

FIELD = "spec.model.parameters"


def check_parts(method: Method) -> Iterator[Finding]:
    """Parts of a model that the job's method cannot work with, and a score of a model that lacks some."""
    spec, shared = method.spec, method.models.shared
    parameters = spec.model.parameters
    if parameters is None:
        return
    if shared.whole is not None:
        problem = f"is not possible with method {method.name}: {shared.whole}"
        remedy = f"remove it, or use {', '.join(_methods_with_parameters(spec))}"
        written = parameters.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        yield FIELD, written, problem, remedy
    if shared.own_classifier and not any(
        fnmatchcase("classifier.weight", pattern) for pattern in parameters.local
    ):
        problem = f"does not name the classifier, which every silo has for itself in {method.name}"
        remedy = "add classifier.*, or leave parameters out"
        yield f"{FIELD}.local", list(parameters.local), problem, remedy
    if parameters.local and spec.evaluation.test_dataset is not None:
        problem = "scores a model without the silos' local tensors, which the aggregator does not have"
        remedy = "remove it: silos then score the model with their own, on their validation examples"
        yield "spec.evaluation.testDataset", spec.evaluation.test_dataset, problem, remedy


def _methods_with_parameters(spec: FederatedJobSpec) -> Iterator[str]:
    for name in registry.names():
        with suppress(FedsiloError):  # a package of somebody else's that does not load
            other = spec.model_copy(update={"method": MethodSpec(name=name)})
            if registry.bind(other).models.shared.whole is None:
                yield name
