"""The one metric that stands for a job: it comes first in tables, and chooses the best model by default."""

from __future__ import annotations

from fedsilo.api.evaluation import EvaluationSpec, better_mode
from fedsilo.learning.metrics.catalogue import CONFUSION_MATRIX, LOSS, over_silos, reported_name
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.methods.method import Method
from fedsilo.methods.step import PERSONAL_ACCURACY
from fedsilo.tasks.registry import DEFAULT, TASKS


def main_metric(method: Method) -> str | None:
    """Name, as reports have it, of the metric that the job chooses its best model by, else of the first that it asks
    for, else of its learning task's own; None where only the job's own task knows that.
    """
    spec, models = method.spec, method.models
    if spec.evaluation.best is not None and spec.evaluation.best.metric is not None:
        return spec.evaluation.best.metric
    if not models.shared.is_model:
        return PERSONAL_ACCURACY if models.personal is not None else None
    for metric in spec.evaluation.metrics or ():
        if metric != CONFUSION_MATRIX:
            name = reported_name(metric)
            by_silo = spec.evaluation.test_dataset is None and name in ChosenMetrics.of_job(spec).by_silo
            return over_silos(name)[0] if by_silo else name
    task = TASKS.get((spec.task or DEFAULT).name)
    return None if task is None else task.metrics[0]


def whole_evaluation(method: Method) -> EvaluationSpec:
    """The job's evaluation, with what its best model is chosen by where the job leaves that open."""
    evaluation = method.spec.evaluation
    if evaluation.best is None:
        return evaluation
    metric = main_metric(method) or LOSS
    best = evaluation.best.model_copy(
        update={"metric": metric, "mode": evaluation.best.mode or better_mode(metric)}
    )
    return evaluation.model_copy(update={"best": best})
