"""The metrics by name: what each is, what it is a metric of, and what it is computed from.

Torch-free, so that guard, command line and operator know what an evaluation sends; `scores.py` computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedsilo.tasks.interface import Answers

Source = Literal["always", "counts", "sums", "predictions"]
"""What a metric is computed from: it is always there, from counts of answers, from other sums, or all predictions."""

ACCURACY, LOSS = "accuracy", "loss"

PERSONAL_METRICS = ("personal_accuracy", "named_personal_accuracy", "named_scores")
"""Names of what silos say of models of their own, and of what only their guards say."""

CONFUSION_MATRIX = "confusion_matrix"

CALIBRATION_ERROR = "calibration_error"

RMSE, R2, PERPLEXITY = "rmse", "r2", "perplexity"

MAX_CONFUSION_CLASSES = 100
"""Classes of a confusion matrix that is kept: a history with more would be matrices and little else."""

MAX_PER_CLASS = 1000
"""Classes of which a record has a figure each; of more there are the means only."""

TASK_OF: dict[Answers, str] = {
    "class": "classification",
    "labels": "multilabel",
    "numbers": "regression",
    "pixels": "segmentation",
    "tokens": "language of next tokens",
}
"""What a model answers -> the learning task, for messages."""

CLASSES: tuple[Answers, ...] = ("class", "pixels")
LABELS: tuple[Answers, ...] = ("class", "labels", "pixels")


@dataclass(frozen=True)
class MetricDescription:
    """One entry of the catalogue.

    :param of: the kinds of answers that it is a metric of.
    :param per_class: whether there is a figure for each class besides the mean.
    :param unit_range: whether it lies between 0 and 1.
    """

    name: str
    source: Source
    of: tuple[Answers, ...]
    summary: str
    per_class: bool = False
    unit_range: bool = True


METRICS: dict[str, MetricDescription] = {
    entry.name: entry
    for entry in (
        MetricDescription(ACCURACY, "always", (*LABELS, "tokens"), "share of correct answers"),
        MetricDescription("mae", "always", ("numbers",), "mean absolute error", unit_range=False),
        MetricDescription(LOSS, "always", (*LABELS, "numbers", "tokens"), "mean loss", unit_range=False),
        MetricDescription("balanced_accuracy", "counts", CLASSES, "mean recall of the classes that occur"),
        MetricDescription("recall", "counts", LABELS, "of a class's examples, the share found", True),
        MetricDescription("precision", "counts", LABELS, "of a class's answers, the share correct", True),
        MetricDescription("f1", "counts", LABELS, "harmonic mean of recall and precision", True),
        MetricDescription("f1_micro", "counts", ("labels",), "the same of all labels' answers together"),
        MetricDescription("dice", "counts", ("pixels",), "2 overlap / (mask + answer) of a class", True),
        MetricDescription(
            "iou", "counts", ("pixels",), "overlap / union of mask and answer of a class", True
        ),
        MetricDescription(CONFUSION_MATRIX, "counts", CLASSES, "examples by class and answer"),
        MetricDescription(
            "auroc",
            "predictions",
            ("class", "labels"),
            "area under the ROC curve, one against all others",
            True,
        ),
        MetricDescription(
            "average_precision",
            "predictions",
            ("class", "labels"),
            "area under precision over recall, likewise",
            True,
        ),
        MetricDescription(
            CALIBRATION_ERROR,
            "sums",
            ("class",),
            "distance of confidence and accuracy in 15 bins of confidence",
        ),
        MetricDescription(RMSE, "sums", ("numbers",), "root of the mean squared error", unit_range=False),
        MetricDescription(
            R2, "sums", ("numbers",), "share of the targets' variance explained", unit_range=False
        ),
        MetricDescription(
            PERPLEXITY, "sums", ("tokens",), "exponential of the mean cross-entropy", unit_range=False
        ),
    )
}


def metrics_for(answers: Answers | None) -> tuple[str, ...]:
    """Names of the metrics of such answers; of an own learning task there is none but its own."""
    return tuple(name for name, entry in METRICS.items() if answers in entry.of)


def over_silos(metric: str) -> tuple[str, str]:
    """Names of mean and spread of a metric that each silo has computed for itself."""
    return f"{metric}_mean", f"{metric}_spread"


def pooled_name(reported: str) -> str:
    """Name of the metric whose mean over silos is reported under this name; else the name itself."""
    return reported.removesuffix("_mean")


def reported_name(metric: str) -> str:
    """Name of a metric in reports: that of its function, where it is the job's own."""
    return metric.rpartition(":")[2]
