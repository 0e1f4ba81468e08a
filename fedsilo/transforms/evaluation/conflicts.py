"""What a job asks its evaluations for that there is no model for."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.methods.method import Method
from fedsilo.methods.step import PERSONAL_ACCURACY


def check_metrics_of_method(method: Method) -> Iterator[Finding]:
    """Metrics where silos score models of their own alone."""
    metrics, models = method.spec.evaluation.metrics, method.models
    if metrics and models.personal is not None and not models.shared.is_model:
        problem = f"are of a model for all silos, and {method.name} yields none"
        remedy = f"remove them: {PERSONAL_ACCURACY} is always reported"
        yield "spec.evaluation.metrics", ", ".join(metrics), problem, remedy
