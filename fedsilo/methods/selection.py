"""Whether a job's model can be scored and chosen, and its rounds ended early, as its evaluation asks."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.api.messages import closest_or
from fedsilo.learning.metrics.chosen import reported
from fedsilo.methods.interface import PERSONAL_ACCURACY
from fedsilo.methods.method import Method


def check_selection(method: Method) -> Iterator[Finding]:
    """Faults of `spec.evaluation.best`, `checkpoints`, `patience`, and of metrics where no model is for all silos."""
    evaluation, models = method.spec.evaluation, method.models
    if evaluation.metrics and models.personal is not None and not models.shared.is_model:
        problem = f"are of a model for all silos, and {method.name} yields none"
        yield (
            "spec.evaluation.metrics",
            ", ".join(evaluation.metrics),
            problem,
            f"remove them: {PERSONAL_ACCURACY} is always reported",
        )
    names = reported(method.spec) if models.shared.is_model else ()
    if evaluation.best is not None and names is not None:
        known = (*names, *([PERSONAL_ACCURACY] if models.personal is not None else []))
        metric = evaluation.best.metric
        if metric not in known:
            problem = "is no figure that this job's evaluations report"
            remedy = closest_or(metric, known, "spec.evaluation.metrics adds others")
            yield "spec.evaluation.best.metric", metric, problem, remedy
    rounds = sum(phase.rounds for phase in method.phases())
    if evaluation.checkpoints is not None and evaluation.checkpoints > rounds:
        problem = f"is more than the {rounds} rounds, so that no checkpoint would be kept"
        yield (
            "spec.evaluation.checkpoints",
            evaluation.checkpoints,
            problem,
            f"use {rounds} or less, or remove it",
        )
    if evaluation.patience is None:
        return
    phases = dict.fromkeys(phase.name for phase in method.phases())
    if len(phases) > 1:
        problem = (
            f"would end a job of {method.name}, whose phases {', '.join(phases)} need one another, too early"
        )
        yield "spec.evaluation.patience", evaluation.patience, problem, "remove it; best can stay"
