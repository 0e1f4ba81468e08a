"""What a silo may be asked to do in a job and what it may send in answer: a step's payloads and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsilo.errors import MethodError, Problem
from fedsilo.wire.combine import BLOCK_MEAN, BlockMean, Combine
from fedsilo.wire.contract import ANY_SAMPLES, METRIC_RANGE, Limits
from fedsilo.wire.tensors import TensorSpec

PERSONAL_ACCURACY = "personal_accuracy"
"""Accuracy of the silo's own model on its validation examples, reported as mean and spread over the silos only."""

NAMED_PERSONAL_ACCURACY = "named_personal_accuracy"
"""Accuracy of the silo's own model, reported with the silo's name where its policy permits; only its guard says it."""

NAMED_SCORES = "named_scores"
"""Is 1 beside scores of the job's model that may be reported with the silo's name; only its guard says it."""

RANGES = dict.fromkeys(("accuracy", PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY), (0.0, 1.0))
"""Range of a metric of this name, unless its step declares another."""


@dataclass(frozen=True)
class Payload:
    """One thing that a silo sends in a step, with symbolic shape.

    :param kind: payload kind of the wire (`model`, `class_counts`, `class_means`, ...).
    :param name: block name, or None for every tensor of the job's model under its own name.
    :param shape: numbers and names of dimensions, see `Method.dimensions`.
    :param per_class: one block `name/<class>` per class, left out where the silo holds too few samples.
    :param combine: how silos' blocks become one, see `reading.Sums.combine`; what it names are payloads, of the same
        class where there is one block per class.
    :raises MethodError: a name, a size or a type that no tensor can have.
    """

    kind: str
    name: str | None = None
    shape: tuple[int | str, ...] = ()
    dtype: str = "float32"
    per_class: bool = False
    combine: Combine = BLOCK_MEAN

    def __post_init__(self) -> None:
        sizes = tuple(size if isinstance(size, int) else 1 for size in self.shape)
        try:
            TensorSpec(self.kind if self.name is None else self.name, sizes, self.dtype)
        except Problem as problem:
            raise MethodError(f"payload of kind {self.kind}: {problem.detail}") from None

    @property
    def averaged_by_rule(self) -> bool:
        """Whether its blocks are averaged over silos by the job's rule; those of a class are not."""
        return isinstance(self.combine, BlockMean) and not self.per_class


@dataclass(frozen=True)
class Metric:
    """A number that a silo states beside its tensors.

    :param range: its smallest and largest value; a figure outside is refused. By default an accuracy is from 0 to 1,
        and a loss or count any number of `fedsilo.wire.contract.METRIC_RANGE`.
    :param required: whether the server half cannot go on without; an update that leaves it out is refused.
    :param alike: whether its mean and spread over silos are reported, each of which counts as one.
    """

    name: str
    range: tuple[float, float] | None = None
    required: bool = False
    is_unweighted: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.range or RANGES.get(self.name, METRIC_RANGE)


LOSS = Metric("loss")
"""Mean loss of the silo's training, or of the model that it scores."""


@dataclass(frozen=True)
class Step:
    """What a silo may answer to a task of this step.

    :param limits: ranges of metrics that follow from the samples and metrics of the update itself, in place of theirs.
    :param samples: smallest and largest number of samples.
    """

    payloads: tuple[Payload, ...] = ()
    metrics: tuple[Metric, ...] = ()
    limits: Limits | None = field(default=None, compare=False)
    samples: tuple[int, int] = ANY_SAMPLES

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its metrics."""
        return tuple(metric.name for metric in self.metrics)

    @property
    def required_metrics(self) -> list[str]:
        """Names of the metrics that no update may leave out, sorted."""
        return sorted(metric.name for metric in self.metrics if metric.required)


CONFUSION = "confusion"
"""Payload kind, and name of the blocks, of the answers that a model gives for each class's examples."""

CALIBRATION = "calibration"
"""Name of the block, of the same kind, of how often answers of which confidence are correct."""

TARGETS = "targets/"
"""Begins the names of the blocks, of kind `feature_statistics`, that say of targets what others say of features."""

EVALUATION = Step(metrics=(Metric("accuracy"), LOSS))
"""What a silo may say of a model that it scores, in every method."""
