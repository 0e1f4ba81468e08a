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
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from pydantic import ConfigDict

from fedsilo.api.common import Fields
from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.methods.moments import ClassMoments, Spread
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.registry import bind
from fedsilo.wire import ModelSignature

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from fedsilo.learning.custom_training import TrainingOutcome
    from fedsilo.learning.examples import Examples
    from fedsilo.learning.models import Model
    from fedsilo.learning.training import LocalTraining, Loss

EVALUATE = "evaluate"
"""The step that every method has: the silo scores the model on its validation examples and sends scalars."""

PREPROCESSING = "preprocessing"
"""The step before round 1 in which silos send statistics, and the tree that follows and goes with every task."""

PERSONAL_TREE = "personal"
"""The tree of private state that is the silo's own model, in methods that make one; it never leaves the silo."""

INITIAL_WEIGHTS = "initialWeights"
"""The tree of all initial weights, which silos are handed where they need it; methods do not see it."""

LOCAL = "local"
"""The tree of private state with the silo's local tensors, see `spec.model.parameters`; methods do not see it."""


class MethodConfig(Fields):
    """Base of a method's `spec.method.config`: camelCase in YAML; unknown fields and endless numbers are refused."""

    model_config = ConfigDict(allow_inf_nan=False)


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
    :param of: the exchange of whose sum this is a step, see `fedsilo.transforms.secure_sum.steps`; halves see none.
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
    :param min_samples_per_class: the larger of the job's and the silo's minimum.
    :param min_samples_per_feature: the larger of the job's and the silo's minimum.
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
        """A network of any structure on the device with these weights; all else is as in `model`."""

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
    def class_moments(
        self, task: SiloTask, features: np.ndarray | None = None, spread: Spread | None = None
    ) -> ClassMoments:
        """Counts and moments of the classes of the training examples, as they may leave the silo.

        A class below the minimum is left out. They have noise where the job asks for it, and it is then the noisy count
        that is below the minimum or not.

        :param features: (n, d) of the training examples, in their order; None counts them only.
        :param spread: what of it is told beside the mean; none by default.
        """

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

    def batched_replies(self, silos: Sequence[SiloContext], tasks: Sequence[SiloTask]) -> list[Reply]:
        """The replies of several, equal to their own up to rounding; such a step keeps nothing between rounds."""


@dataclass(frozen=True)
class Snapshot:
    """A model that could be used now.

    :param tree: its tensors, in the architecture that the declaration names.
    :param settings: facts that the architecture depends on and only the run knows, such as a number of clusters.
    """

    tree: Tree
    settings: Mapping[str, Scalar] = field(default_factory=dict)


Read = TypeVar("Read", bound=Mean, contravariant=True)


class ServerHalf(Protocol[Read]):
    """The aggregator's side of a method.

    What it may read of a round's updates is the type of the last parameter of `aggregate`: the mean of the models, sums
    over silos, or single silos too.
    """

    def start(self, job: ServerContext) -> State:
        """State before round 1."""

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """What each of the round's silos gets."""

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, read: Read, /) -> State:
        """State after the round."""

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The model as it would be used now."""
