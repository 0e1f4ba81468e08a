"""What a method is made of: what it declares (method.py), and what its two halves are given and give back.

The declaration says what the method does to the outside: its configuration, its phases, and for each step what a
silo may send. Guard and aggregator derive the payload contract from it, the command line and the operator check
jobs with it, and none of them needs the code that computes.

The two halves read like the paper's algorithm. Each is a set of functions from explicit state to explicit state;
whatever must survive a round stands in a `State`, so that the engine can store it, restart anywhere, and run a
silo in a process of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.secure_aggregation.layout import Quotient
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.registry import bind
from fedsilo.wire import ModelSignature
from fedsilo.wire.contract import ANY_SAMPLES, METRIC_RANGE, Limits

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from fedsilo.learning.examples import Examples
    from fedsilo.learning.models import Model
    from fedsilo.learning.own_training import TrainingOutcome
    from fedsilo.learning.training import LocalTraining, Loss

EVALUATE = "evaluate"
"""The step that every method has: the silo scores the model on its validation examples and sends scalars."""

PREPROCESSING = "preprocessing"
"""The step before round 1 in which silos send statistics, and the tree that follows and goes with every task."""

PERSONAL = "personal"
"""The tree of private state that is the silo's own model, in methods that make one; it never leaves the silo."""

INITIAL = "initialWeights"
"""The tree of all initial weights, which silos are handed where they need it; methods do not see it."""

LOCAL = "local"
"""The tree of private state with the silo's local tensors, see `spec.model.parameters`; methods do not see it."""

PERSONAL_ACCURACY = "personal_accuracy"
"""Accuracy of the silo's own model on its validation examples, reported as mean and spread over the silos only."""

NAMED_PERSONAL_ACCURACY = "named_personal_accuracy"
"""The same where the silo's policy lets it be reported with the silo's name; only its guard may call it so."""

RANGES = dict.fromkeys(("accuracy", PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY), (0.0, 1.0))
"""Range of a metric of this name, unless its step declares another."""


class MethodConfig(BaseModel):
    """Base of a method's `spec.method.config`: camelCase in YAML; unknown fields and endless numbers are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False
    )


@dataclass(frozen=True)
class Payload:
    """One thing that a silo sends in a step, with symbolic shape.

    :param kind: payload kind of the wire (`model`, `class_counts`, `class_means`, ...).
    :param name: block name, or None for every tensor of the job's model under its own name.
    :param shape: numbers and names of dimensions, see `Method.dimensions`.
    :param per_class: one block `name/<class>` per class, left out where the silo holds too few samples.
    :param counted: name of the payload that says how many samples are behind it, per class or element by element: where
        only a sum is seen it weighs by that, and a block of a class without it by the silos that sent it.
    :param total: whether it is added there, and not averaged.
    :param about: name of the payload of means about which this one has sums of squared deviations.
    """

    kind: str
    name: str | None = None
    shape: tuple[int | str, ...] = ()
    dtype: str = "float32"
    per_class: bool = False
    counted: str | None = None
    total: bool = False
    about: str | None = None


@dataclass(frozen=True)
class Step:
    """What a silo may answer to a task of this step.

    :param metrics: names of scalars.
    :param ranges: name -> smallest and largest value of such a scalar. Of the others, an accuracy is from 0 to 1, and a
        loss or count any number of `fedsilo.wire.contract.METRIC_RANGE`. A figure outside is refused.
    :param required: metrics without which the server half cannot go on; an update that leaves one out is refused.
    :param limits: ranges that follow from the samples and metrics of the update itself, in place of those above.
    :param samples: smallest and largest number of samples.
    :param quotient: what the server half reads of the models by `ServerContext.quotient`, beside their mean.
    :param alike: metrics of which mean and spread over silos are reported, each of which counts as one.
    """

    payloads: tuple[Payload, ...] = ()
    metrics: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    required: tuple[str, ...] = ()
    limits: Limits | None = field(default=None, compare=False)
    samples: tuple[int, int] = ANY_SAMPLES
    quotient: Quotient | None = None
    alike: frozenset[str] = frozenset()

    def range_of(self, metric: str) -> tuple[float, float]:
        """Smallest and largest value of a metric."""
        return self.ranges.get(metric, RANGES.get(metric, METRIC_RANGE))


CONFUSION = "confusion"
"""Payload kind, and name of the blocks, of the answers that a model gives for each class's examples."""

CALIBRATION = "calibration"
"""Name of the block, of the same kind, of how often answers of which confidence are correct."""

TARGETS = "targets/"
"""Begins the names of the blocks, of kind `feature_statistics`, that say of targets what others say of features."""

EVALUATION = Step(metrics=("accuracy", "loss"))
"""What a silo may say of a model that it scores, in every method."""


@dataclass(frozen=True)
class Phase:
    """Consecutive rounds in which silos do the same step.

    :param everyone: all silos take part, whatever the participation fraction.
    """

    name: str
    rounds: int
    step: str
    everyone: bool = False


@dataclass(frozen=True)
class Exchange:
    """One round as the halves see it.

    :param round: number of the round in the job, from 1.
    :param phase_round: number of the round among those of its phase's name, from 1.
    :param phase_rounds: how many of those there are.
    :param of: the exchange of whose sum this is a step, see `fedsilo.methods.secure_sums`; halves see none.
    """

    phase: Phase
    round: int
    phase_round: int
    phase_rounds: int
    of: Exchange | None = None


@dataclass(frozen=True)
class Assignment:
    """What the server half asks of one silo.

    :param trees: name at the silo -> name of the tree in the server's state.
    :param settings: small facts that travel in the signed task.
    """

    trees: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)


class Updates(Protocol):
    """The accepted updates of a round, in the order of the job's silo references.

    Where the aggregator may see sums only, they are one update, named as no silo is: the sum of all of them.
    """

    @property
    def silos(self) -> tuple[str, ...]:
        """Names of the silos whose updates count."""

    @property
    def count(self) -> int:
        """How many silos' updates count."""

    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""

    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""

    def names(self, silo: str, kind: str) -> Sequence[str]:
        """Names of the silo's tensors of that kind."""

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind; about one model of memory, however many silos.

        A tensor that some silos left out is summed over the others.
        """

    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied: for small things such as class statistics."""


@dataclass(frozen=True)
class ServerContext(ABC):
    """What the server half may use.

    :param signature: names and shapes of what silos share of the job's model; all of it unless the job says otherwise.
    :param silos: references `namespace/name`, in the job's order.
    """

    spec: FederatedJobSpec
    signature: ModelSignature
    silos: tuple[str, ...]

    @abstractmethod
    def initial_model(self) -> Tree:
        """What silos share of the job's model, with its initial weights, the same for every silo."""

    @abstractmethod
    def mean(
        self, updates: Updates, kind: str, silos: Sequence[str] | None = None, weights: str | None = None
    ) -> Tree:
        """Average of a kind of tensor, normalised over the given silos (all that answered by default).

        :param weights: `samples` or `uniform`; the job's rule by default.
        """

    @abstractmethod
    def shares(
        self, updates: Updates, silos: Sequence[str] | None = None, weights: str | None = None
    ) -> Mapping[str, float]:
        """What part of that average each silo is, p_k; they add up to one."""

    @abstractmethod
    def quotient(
        self, updates: Updates, quotient: Quotient, scale: float = 1.0, distance: float = 1.0
    ) -> tuple[Tree, float]:
        """The sum over silos of v_k times each tensor of its model, and the sum of v_k = scale p_k / (m_k distance).

        :param quotient: that of the step: metric m_k, and whether p_k is the part of the job's average or 1.
        """

    @abstractmethod
    def mean_metric(self, updates: Updates, metric: str) -> float:
        """Average of a metric that every silo states, by the job's rule."""

    @abstractmethod
    def totals(self, updates: Updates, kind: str) -> Tree:
        """Sum of each tensor over the silos that sent it."""

    @abstractmethod
    def class_means(self, updates: Updates, kind: str) -> Tree:
        """Mean of each tensor of a class over the silos that sent it, each alike."""

    @abstractmethod
    def public_examples(self) -> Examples:
        """The job's public dataset, on the device; for methods with `public_data`; labels are zeros unless that says
        that they are read. None of it comes from a silo. It is read on first use.

        :raises DataInvalid: it cannot be read, or does not fit the job.
        """

    @abstractmethod
    def module(self, tree: Mapping[str, np.ndarray]) -> nn.Module:
        """The job's network on the device with these weights; for methods that learn from public data."""

    @abstractmethod
    def seed(self, *purpose: str | int) -> int:
        """Seed for a purpose, derived from the job's seed."""


@dataclass(frozen=True)
class SiloContext(ABC):
    """What the silo half may use. It never sees a key, a network or another silo.

    :param silo: reference of this silo, `namespace/name`.
    :param train: the silo's training examples, on the device.
    :param validation: the examples held out from training; may be none.
    :param min_samples_per_class: the larger of the job's and the silo's minimum; likewise `min_samples_per_feature`.
    """

    spec: FederatedJobSpec
    signature: ModelSignature
    silo: str
    train: Examples
    validation: Examples
    min_samples_per_class: int
    min_samples_per_feature: int

    @abstractmethod
    def initial_model(self) -> Tree:
        """The job's model with its initial weights, as at the aggregator; for methods with `silos_need_initial`."""

    @abstractmethod
    def model(self, tree: Mapping[str, np.ndarray], architecture: ModelSpec | None = None) -> Model:
        """A model on the device with these weights; the job's own architecture unless another is given.

        Tensors that silos do not share, and that the tree need not have, are the silo's own or the initial ones.

        :raises MethodError: it is no encoder with a classifier.
        """

    @abstractmethod
    def module(self, tree: Mapping[str, np.ndarray], architecture: ModelSpec | None = None) -> nn.Module:
        """The same where its structure does not matter."""

    @property
    def learning_task(self) -> LearningTask:
        """What the job's model learns."""
        return bind(self.spec.task, self.spec.data)

    def loss(self) -> Loss:
        """The learning task's loss on this silo's examples, with its class weights where the job wants them."""
        from fedsilo.learning.losses import task_loss

        return task_loss(self.learning_task, self.train.labels)

    @abstractmethod
    def local_training(self, task: SiloTask) -> LocalTraining:
        """The job's local training for this round: rate of the schedule, seed of silo and round."""

    @abstractmethod
    def own_training(
        self, task: SiloTask, model: nn.Module, state: Mapping[str, np.ndarray]
    ) -> TrainingOutcome:
        """What the job's own function, `spec.training.trainer`, makes of the model; it is checked.

        :param state: what it kept in the silo's last round.
        """

    @abstractmethod
    def seed(self, *purpose: str | int) -> int:
        """Seed for a purpose, derived from the job's seed and this silo's reference."""

    @abstractmethod
    def secret_generator(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for a purpose that nobody outside of the silo can draw again, for noise that hides something.

        The silo gets the same ones whenever it asks in this job, but another run of the same manifest gets others.
        """


@dataclass(frozen=True)
class SiloTask:
    """A task as the silo half sees it: verified by the guard, blobs mapped.

    :param phase_round: as in `Exchange`; the schedule of the learning rate runs over a phase.
    """

    step: str
    phase: str
    round: int
    phase_round: int
    phase_rounds: int
    trees: Mapping[str, Mapping[str, np.ndarray]]
    settings: Mapping[str, Scalar]


@dataclass(frozen=True)
class Reply:
    """What a silo half answers.

    :param tensors: block name -> array, as the step's payloads say.
    :param samples: examples that the answer was computed from.
    :param support: samples behind each per-class block; the guard checks it and never sends it.
    :param mechanisms: noise that the trainer added, as the silo's examples see it; the guard never sends it either.
    :param noised: names of the tensors that these mechanisms have clipped and noised, where the job has differential
        privacy of examples or persons: all others must be as the task handed them out.
    :param private: the silo's state from the moment this reply is acknowledged; None keeps what was.
    """

    tensors: Tree = field(default_factory=dict)
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    support: Mapping[str, int] = field(default_factory=dict)
    private: State | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    noised: frozenset[str] = frozenset()


SiloStep = Callable[[SiloContext, SiloTask, State], Reply]
"""One step of a silo half: from the silo's context, the task and the private state to the reply."""


@runtime_checkable
class BatchedStep(Protocol):
    """A step that can also be done for several silos of one process at once, for research with many of them."""

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """The reply of one silo."""

    def batched(self, silos: Sequence[SiloContext], tasks: Sequence[SiloTask]) -> list[Reply]:
        """The replies of several, equal to their own up to rounding; such a step keeps nothing between rounds."""


@dataclass(frozen=True)
class Snapshot:
    """A model that could be used now.

    :param tree: its tensors, in the architecture that the declaration names.
    :param settings: facts that the architecture depends on and only the run knows, such as a number of clusters.
    """

    tree: Tree
    settings: Mapping[str, Scalar] = field(default_factory=dict)


class ServerHalf(Protocol):
    """The aggregator's side of a method."""

    def start(self, job: ServerContext) -> State:
        """State before round 1."""

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """What each of the round's silos gets."""

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """State after the round."""

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The model as it would be used now."""
