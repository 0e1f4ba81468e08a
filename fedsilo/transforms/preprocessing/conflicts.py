"""What a job with `spec.data.preprocessing` asks for that has no values to prepare."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.methods.method import Method
from fedsilo.tasks.language import LanguageTask
from fedsilo.tasks.registry import kind_of


def check_values(method: Method) -> Iterator[Finding]:
    """A learning task that reads no measured values."""
    spec = method.spec
    if spec.data.preprocessing is not None and kind_of(spec.task) == LanguageTask.name:
        problem = "is of measured values, and the learning task reads tokens"
        given = spec.data.preprocessing.model_dump(by_alias=True)
        yield "spec.data.preprocessing", given, problem, "remove it"
