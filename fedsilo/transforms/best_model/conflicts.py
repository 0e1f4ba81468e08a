"""What a job that chooses its best model asks for that no evaluation reports, or no phase permits."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.api.messages import closest_or
from fedsilo.learning.metrics.chosen import reported_metrics
from fedsilo.methods.main_metric import whole_evaluation
from fedsilo.methods.method import Method
from fedsilo.methods.step import PERSONAL_ACCURACY


def check_choice(method: Method) -> Iterator[Finding]:
    """A metric that is not reported, and an end of a job whose phases need one another."""
    evaluation, models = whole_evaluation(method), method.models
    names = reported_metrics(method.spec) if models.shared.is_model else ()
    if evaluation.best is not None and names is not None:
        known = (*names, *([PERSONAL_ACCURACY] if models.personal is not None else []))
        metric = evaluation.best.metric
        if metric not in known:
            problem = "is no figure that this job's evaluations report"
            remedy = closest_or(metric, known, "spec.evaluation.metrics adds others")
            yield "spec.evaluation.best.metric", metric, problem, remedy
    phases = dict.fromkeys(phase.name for phase in method.phases())
    if evaluation.patience is not None and len(phases) > 1:
        problem = (
            f"would end a job of {method.name}, whose phases {', '.join(phases)} need one another, too early"
        )
        yield "spec.evaluation.patience", evaluation.patience, problem, "remove it; best can stay"
