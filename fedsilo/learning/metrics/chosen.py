"""The metrics of one job: how each is computed, what silos send for it, and under which names it is reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.api.text import comma_separated
from fedsilo.learning.metrics.catalogue import (
    CALIBRATION_ERROR,
    CLASSES,
    CONFUSION_MATRIX,
    LOSS,
    MAX_CONFUSION_CLASSES,
    MAX_PER_CLASS,
    METRICS,
    PERPLEXITY,
    PERSONAL_METRICS,
    R2,
    TASK_OF,
    Source,
    metrics_for,
    over_silos,
    reported_name,
)
from fedsilo.tasks.interface import Answers
from fedsilo.tasks.registry import DEFAULT, TASKS, answers_of, check_task

OWN_METRIC = "python:package.module:factory"

POSITIVE_AND_NEGATIVE = 2
"""Classes of a job that can have a positive one."""

TOKENS, LOG_LIKELIHOOD = "tokens", "log_likelihood"
"""Names of the scalars that perplexity follows from: a sequence's tokens and their log-likelihood, both means."""


@dataclass(frozen=True)
class ChosenMetrics:
    """The metrics of a job, by how they are computed.

    :param counts: names of those that follow from counts of answers.
    :param sums: names of those that follow from other sums.
    :param predictions: names of scikit-learn's that need every prediction.
    :param own: name in reports -> `python:` reference of a factory.
    :param answers: what they are metrics of; None for an own learning task.
    :param positive: label of the class that metrics are of which others give by class; None for their mean.
    """

    counts: tuple[str, ...]
    sums: tuple[str, ...]
    predictions: tuple[str, ...]
    own: dict[str, str]
    answers: Answers | None = "class"
    positive: int | None = None

    @classmethod
    def of(
        cls, metrics: Sequence[str] | None, answers: Answers | None = "class", positive: int | None = None
    ) -> ChosenMetrics:
        """The metrics that `spec.evaluation.metrics` names, by how they are computed."""
        names = metrics or ()

        def names_of_source(source: Source) -> tuple[str, ...]:
            return tuple(name for name in names if name in METRICS and METRICS[name].source == source)

        own = {reported_name(name): name for name in names if name.startswith(PYTHON)}
        counts, sums = names_of_source("counts"), names_of_source("sums")
        return cls(counts, sums, names_of_source("predictions"), own, answers, positive)

    @classmethod
    def of_job(cls, spec: FederatedJobSpec) -> ChosenMetrics:
        """The metrics of a job's specification, by how they are computed."""
        return cls.of(spec.evaluation.metrics, answers_of(spec.task, spec.data), positive_label(spec))

    @property
    def any(self) -> bool:
        """Whether there is anything to compute besides the learning task's own metrics."""
        return bool(self.counts or self.sums or self.predictions or self.own)

    @property
    def by_silo(self) -> tuple[str, ...]:
        """Names of the scalars that each silo computes for itself where silos score the model."""
        return (*self.predictions, *self.own)

    @property
    def bins(self) -> bool:
        """Whether the confidence of answers is counted in bins."""
        return CALIBRATION_ERROR in self.sums

    @property
    def targets(self) -> bool:
        """Whether silos state mean and spread of their targets and errors."""
        return R2 in self.sums

    @property
    def intermediate_metrics(self) -> tuple[str, ...]:
        """Names of scalars of silos that are reported only as what follows from them."""
        return (TOKENS, LOG_LIKELIHOOD) if PERPLEXITY in self.sums else ()

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest value of those of `by_silo` that have one."""
        return {name: (0.0, 1.0) for name in self.predictions if METRICS[name].unit_range}


def positive_label(spec: FederatedJobSpec) -> int | None:
    """Label of the job's positive class; None where it names none, or none that it has."""
    positive, names = spec.evaluation.positive_class, spec.data.class_names
    if names is not None:
        return names.index(positive) if isinstance(positive, str) and positive in names else None
    return positive if isinstance(positive, int) and positive < spec.data.class_count else None


def metrics_by_class(spec: FederatedJobSpec) -> list[str]:
    """The job's metrics that are of one class, the positive one, or else the mean of those of all classes."""
    return [name for name in spec.evaluation.metrics or () if name in METRICS and METRICS[name].per_class]


def class_scope(spec: FederatedJobSpec) -> str | None:
    """What a job of two classes measures by class, for people; None where there is nothing to tell apart."""
    names = metrics_by_class(spec)
    if not names or spec.data.class_count != POSITIVE_AND_NEGATIVE:
        return None
    what, verb = comma_separated(names), "is" if len(names) == 1 else "are"
    if (positive := positive_label(spec)) is not None:
        return f"{what} {verb} of the class {spec.data.class_label(positive)}"
    mean = "the mean" if len(names) == 1 else "means"
    return f"{what} {verb} {mean} over both classes, as evaluation.positiveClass names none"


def reported_metrics(spec: FederatedJobSpec) -> tuple[str, ...] | None:
    """Names of the figures that evaluations of a job report; None where only the job's own task knows them."""
    task = TASKS.get((spec.task or DEFAULT).name)
    if task is None:
        return None
    chosen = ChosenMetrics.of_job(spec)
    exact = [name for name in (*chosen.counts, *chosen.sums) if name != CONFUSION_MATRIX]
    computed: Sequence[str] = chosen.by_silo
    if spec.evaluation.test_dataset is None:
        computed = [name for metric in chosen.by_silo for name in over_silos(metric)]
    return tuple(dict.fromkeys((*task.metrics, LOSS, *exact, *computed)))


def check_metrics(spec: FederatedJobSpec) -> list[Finding]:
    """Faults of the metrics that `spec.evaluation.metrics` names."""
    names = spec.evaluation.metrics or ()
    return [
        *_name_faults(names),
        *_task_faults(spec, names),
        *_size_faults(spec, names),
        *_positive_class_faults(spec),
    ]


def _name_faults(names: Sequence[str]) -> Iterator[Finding]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        path = f"spec.evaluation.metrics[{position}]"
        if name.startswith(PYTHON):
            if python_reference(name) is None:
                remedy = "write python:package.module:factory, for example python:hospital.metrics:Kappa"
                yield path, name, "does not name a Python factory", remedy
                continue
            if reported_name(name) in (*METRICS, *PERSONAL_METRICS, TOKENS, LOG_LIKELIHOOD):
                yield path, name, "is reported by the name of a built-in metric", "rename the factory"
        elif name not in METRICS:
            yield path, name, "is not a known metric", closest(name, [*METRICS, OWN_METRIC])
            continue
        if reported_name(name) in seen:
            yield path, name, "is named twice", "remove one"
        seen.add(reported_name(name))


def _task_faults(spec: FederatedJobSpec, names: Sequence[str]) -> Iterator[Finding]:
    """Metrics of other tasks than the job's; nothing where the task itself is at fault."""
    if check_task(spec.task, spec.data):
        return
    answers = answers_of(spec.task, spec.data)
    available = metrics_for(answers)
    job = TASK_OF[answers] if answers else f"one's own, {(spec.task or DEFAULT).name}"
    for position, name in enumerate(names):
        if name in METRICS and name not in available:
            whose = " and ".join(TASK_OF[each] for each in METRICS[name].of)
            problem = f"is a metric of {whose}, and the job's learning task is {job}"
            remedy = f"use {', '.join((*available, OWN_METRIC))}" if available else f"use {OWN_METRIC}"
            yield f"spec.evaluation.metrics[{position}]", name, problem, remedy


def _positive_class_faults(spec: FederatedJobSpec) -> Iterator[Finding]:
    """A positive class of a job that has not two, that is none of them, or of which nothing is measured."""
    path, positive = "spec.evaluation.positiveClass", spec.evaluation.positive_class
    if positive is None or check_task(spec.task, spec.data):
        return
    classes, names = spec.data.class_count, spec.data.class_names
    if answers_of(spec.task, spec.data) not in CLASSES or classes != POSITIVE_AND_NEGATIVE:
        problem = (
            f"is for classification of two classes, or masks of two, and the job learns {spec.task_summary}"
        )
        each = "; perClass in the history has each class's own figures" if classes else ""
        yield path, positive, problem, f"remove it{each}"
    elif positive_label(spec) is None:
        if names is None:
            remedy = f"use the number of a class, 0 to {classes - 1}; data.classes has no names"
        else:
            remedy = closest(str(positive), names)
        yield path, positive, "is not among spec.data.classes", remedy
    elif not metrics_by_class(spec):
        by_class = [name for name in metrics_for(answers_of(spec.task, spec.data)) if METRICS[name].per_class]
        remedy = f"add {', '.join(by_class)}, or remove it"
        yield path, positive, "matters to no metric of spec.evaluation.metrics", remedy


def _size_faults(spec: FederatedJobSpec, names: Sequence[str]) -> Iterator[Finding]:
    by_silos, classes = spec.evaluation.test_dataset is None, spec.data.class_count
    if by_silos and ChosenMetrics.of(names).counts and classes > MAX_PER_CLASS:
        problem = f"need a row of counts for each of {classes} classes, of which a silo sends at most {MAX_PER_CLASS}"
        remedy = "leave out those that follow from counts, or name a test set in spec.evaluation.testDataset"
        yield "spec.evaluation.metrics", list(names), problem, remedy
    if CONFUSION_MATRIX in names and classes > MAX_CONFUSION_CLASSES:
        path = f"spec.evaluation.metrics[{names.index(CONFUSION_MATRIX)}]"
        problem = f"would have {classes} rows, more than the {MAX_CONFUSION_CLASSES} that are kept"
        yield path, CONFUSION_MATRIX, problem, "use recall and precision"
