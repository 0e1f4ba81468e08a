"""The metrics by name: what each is, how silos' scores of it become one, and what a job may ask for.

Torch-free, so that guard, command line and operator know what an evaluation sends; `scores.py` computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.tasks.classification import Classification
from fedsilo.tasks.registry import DEFAULT, TASKS

Source = Literal["always", "confusion", "predictions"]
"""What a metric is computed from: it is always there, from counts of the confusion matrix, or from all predictions."""

ACCURACY, LOSS = "accuracy", "loss"

PERSONAL = ("personal_accuracy", "named_personal_accuracy")
"""Names of what silos say of models of their own."""

CONFUSION_MATRIX = "confusion_matrix"

MAX_CONFUSION_CLASSES = 100
"""Classes of a confusion matrix that is kept: a history with more would be matrices and little else."""

MAX_PER_CLASS = 1000
"""Classes of which a record has a figure each; of more there are the means only."""


@dataclass(frozen=True)
class MetricDescription:
    """One entry of the catalogue.

    :param per_class: whether there is a figure for each class besides the mean.
    :param unit_range: whether it lies between 0 and 1.
    """

    name: str
    source: Source
    summary: str
    per_class: bool = False
    unit_range: bool = True


METRICS: dict[str, MetricDescription] = {
    entry.name: entry
    for entry in (
        MetricDescription(ACCURACY, "always", "share of correct answers"),
        MetricDescription(LOSS, "always", "mean cross-entropy in nats", unit_range=False),
        MetricDescription("balanced_accuracy", "confusion", "mean recall of the classes that occur"),
        MetricDescription("recall", "confusion", "of a class's examples, the share found", per_class=True),
        MetricDescription(
            "precision", "confusion", "of a class's answers, the share correct", per_class=True
        ),
        MetricDescription("f1", "confusion", "harmonic mean of recall and precision", per_class=True),
        MetricDescription(CONFUSION_MATRIX, "confusion", "examples by their class and the model's answer"),
        MetricDescription(
            "auroc", "predictions", "area under the ROC curve, one class against all others", True
        ),
        MetricDescription(
            "average_precision", "predictions", "area under precision over recall, likewise", True
        ),
        MetricDescription(
            "calibration_error", "predictions", "distance of confidence and accuracy in 15 bins of confidence"
        ),
    )
}


@dataclass(frozen=True)
class ChosenMetrics:
    """The metrics of a job, by how they are computed.

    :param confusion: names of those that follow from the confusion matrix.
    :param predictions: names of torchmetrics' that need every prediction.
    :param own: name in reports -> `python:` reference of a factory.
    """

    confusion: tuple[str, ...]
    predictions: tuple[str, ...]
    own: dict[str, str]

    @classmethod
    def of(cls, metrics: Sequence[str] | None) -> ChosenMetrics:
        """Those that `spec.evaluation.metrics` names."""
        names = metrics or ()
        known = [METRICS[name] for name in names if name in METRICS]
        return cls(
            tuple(entry.name for entry in known if entry.source == "confusion"),
            tuple(entry.name for entry in known if entry.source == "predictions"),
            {reported_name(name): name for name in names if name.startswith(PYTHON)},
        )

    @property
    def any(self) -> bool:
        """Whether there is anything to compute besides accuracy and loss."""
        return bool(self.confusion or self.predictions or self.own)

    @property
    def by_silo(self) -> tuple[str, ...]:
        """Names of the scalars that each silo computes for itself where silos score the model."""
        return (*self.predictions, *self.own)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest value of those of `by_silo` that have one."""
        return {name: (0.0, 1.0) for name in self.predictions if METRICS[name].unit_range}


def reported(spec: FederatedJobSpec) -> tuple[str, ...] | None:
    """Names of the figures that evaluations of a job report; None where only the job's own task knows them."""
    task = TASKS.get((spec.task or DEFAULT).name)
    if task is None:
        return None
    chosen = ChosenMetrics.of(spec.evaluation.metrics)
    counted = [name for name in chosen.confusion if name != CONFUSION_MATRIX]
    computed: Sequence[str] = chosen.by_silo
    if spec.evaluation.test_dataset is None:
        computed = [name for metric in chosen.by_silo for name in over_silos(metric)]
    return tuple(dict.fromkeys((*task.metrics, LOSS, *counted, *computed)))


def over_silos(metric: str) -> tuple[str, str]:
    """Names of mean and spread of a metric that each silo has computed for itself."""
    return f"{metric}_mean", f"{metric}_spread"


def reported_name(metric: str) -> str:
    """Name of a metric in reports: that of its function, where it is the job's own."""
    return metric.rpartition(":")[2]


def check_metrics(spec: FederatedJobSpec) -> list[Finding]:
    """Faults of `spec.evaluation.metrics`."""
    names = spec.evaluation.metrics or ()
    return [*_name_faults(names), *_place_faults(spec, names)]


def _name_faults(names: Sequence[str]) -> Iterator[Finding]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        path = f"spec.evaluation.metrics[{position}]"
        if name.startswith(PYTHON):
            if python_reference(name) is None:
                remedy = "write python:package.module:factory, for example python:hospital.metrics:Kappa"
                yield path, name, "does not name a Python factory", remedy
                continue
            if reported_name(name) in (*METRICS, *PERSONAL):
                yield path, name, "is reported by the name of a built-in metric", "rename the factory"
        elif name not in METRICS:
            remedy = closest(name, [*METRICS, "python:package.module:factory"])
            yield path, name, "is not a known metric", remedy
            continue
        if reported_name(name) in seen:
            yield path, name, "is named twice", "remove one"
        seen.add(reported_name(name))


def _place_faults(spec: FederatedJobSpec, names: Sequence[str]) -> Iterator[Finding]:
    by_silos, classes = spec.evaluation.test_dataset is None, spec.data.class_count
    if by_silos and ChosenMetrics.of(names).confusion and classes > MAX_PER_CLASS:
        problem = f"need a row of counts for each of {classes} classes, of which a silo sends at most {MAX_PER_CLASS}"
        remedy = "leave out those that follow from counts, or name a test set in spec.evaluation.testDataset"
        yield "spec.evaluation.metrics", list(names), problem, remedy
    if names and spec.task is not None and spec.task.name != Classification.name:
        problem = f"are of classifications, and the job's learning task is {spec.task.name}"
        yield "spec.evaluation.metrics", list(names), problem, "remove them: the task has metrics of its own"
    if CONFUSION_MATRIX in names and spec.data.class_count > MAX_CONFUSION_CLASSES:
        path = f"spec.evaluation.metrics[{names.index(CONFUSION_MATRIX)}]"
        problem = (
            f"would have {spec.data.class_count} rows, more than the {MAX_CONFUSION_CLASSES} that are kept"
        )
        yield path, CONFUSION_MATRIX, problem, "use recall and precision"
