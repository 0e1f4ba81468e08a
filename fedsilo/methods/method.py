"""A method, bound to one job: what it declares to the outside, and its two halves.

A subclass is the method's declaration: class attributes say who it is, `Config` what a job may set. Its instance is
the method of one job, with the job's specification and its parsed configuration, and answers every question about that
job: steps, exchanges, contracts, averaging, the halves. `registry.bind` makes it. Importing it needs no torch; what
computes is imported inside `server` and `silo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.parameters import ParametersSpec
from fedsilo.errors import FedsiloError, MethodError
from fedsilo.methods.interface import Exchange, MethodConfig, Phase, ServerHalf, SiloStep
from fedsilo.methods.models import JobModels
from fedsilo.methods.reading import Mean, Sums, read_by
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import Step
from fedsilo.methods.traits import AveragingTraits, StateTraits, TaskTraits, TrainingTraits
from fedsilo.wire import ModelSignature

PublicData = Literal["examples", "labelled examples"]
"""What is read of a public dataset; of `examples` the labels, if there are any, are not."""


class Method(ABC):
    """Base of all methods.

    :cvar keeps: what the halves keep between rounds.
    :cvar Config: what `spec.method.config` may hold, a `MethodConfig`; annotate `config` with the same class.
    :cvar tasks: learning tasks that the method has a meaning for.
    :cvar use_when: when to use the method, a clause of one line, which makes it a supported one; a reference method has
        None: it is there to be compared with, as its paper has it. It is not inherited.
    :ivar spec: the job's specification, with the `parameters` of the method's models where it names none.
    :ivar config: the job's configuration of the method.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    citation: ClassVar[str]
    keeps: ClassVar[StateTraits]
    Config: ClassVar[type[MethodConfig]]
    tasks: ClassVar[TaskTraits] = TaskTraits()
    use_when: ClassVar[str | None] = None

    spec: FederatedJobSpec
    config: MethodConfig

    @override
    def __init_subclass__(cls) -> None:
        """A subclass states its own tasks and use, or has the default: with another loss it means something else."""
        super().__init_subclass__()
        cls.tasks = cls.__dict__.get("tasks", Method.tasks)
        cls.use_when = cls.__dict__.get("use_when", Method.use_when)

    def __init__(self, spec: FederatedJobSpec, config: MethodConfig) -> None:
        self.spec, self.config, self._written = spec, config, spec
        self.spec = _with_parameters(spec, self.models.shared.parameters)

    @abstractmethod
    def steps(self) -> Mapping[str, Step]:
        """What silos may be asked to do, and what they may send in answer."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The job's phases in order: `spec.training.rounds` of training, and what the method needs beside them."""

    @abstractmethod
    def server(self) -> ServerHalf[Any]:
        """The half that runs at the aggregator."""

    @abstractmethod
    def silo(self) -> Mapping[str, SiloStep]:
        """The half that runs in the silos, a function for each step."""

    @property
    def averaging(self) -> AveragingTraits:
        """The rule by which means weight silos where the job names none; by default by samples."""
        return AveragingTraits()

    @property
    def reads(self) -> type[Mean]:
        """What the server half reads of a round's updates, see `fedsilo.methods.reading`: as the annotation of `server`
        says, and sums where a half that reads a mean has silos send more than models. By default anything.

        A declaration whose half follows from its configuration says it here.
        """
        found = read_by(type(self).server)
        return Sums if found is Mean and self._kinds != {"model"} else found

    @property
    def _kinds(self) -> set[str]:
        return {payload.kind for step in self.steps().values() for payload in step.payloads}

    @property
    def training(self) -> TrainingTraits:
        """How its silos train; by default with a loss or steps of its own, by the job's plan."""
        return TrainingTraits()

    @property
    def models(self) -> JobModels:
        """What it yields for all silos, and models of their own; by default one of the job's architecture for all."""
        return JobModels()

    @property
    def public_data(self) -> PublicData | None:
        """What the server half reads of `spec.aggregation.publicDataset`: nothing, inputs, or inputs and labels.

        A job of a method that reads it must name one, and of another it must not.
        """
        return None

    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """Values of the symbolic dimensions; `classes` and `feature` (width of the classifier's input) always.

        :param settings: those of the signed task. A dimension may follow from them only within bounds that the
            configuration sets, since they come from the aggregator.
        """
        return {"classes": signature.classes or self.spec.data.class_count, "feature": signature.feature}

    def check(self) -> list[Finding]:
        """Faults of the job that the method alone can find; `checks` has those that follow from what it declares."""
        return []

    def check_sums(self) -> list[Finding]:
        """Faults of a job in which nobody sees more than sums over silos, that the method alone can find."""
        return []

    def silo_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """Settings of a silo's task that are others than those of the other silos, as the job alone determines them.

        With secure aggregation a guard derives them and refuses a task that has others, and all silos are sent the same
        beside these.

        :param exchange: that the task is of.
        :param silo: reference `namespace/name`.
        """
        return {}


@contextmanager
def declaring(method: Method) -> Iterator[None]:
    """A block that asks a method's declaration, which may be a third party's: whatever it raises is reported.

    :raises MethodError: in place of an error that is not one of fedsilo's.
    """
    try:
        yield
    except FedsiloError:
        raise
    except Exception as error:
        raise MethodError(
            f"the declaration of method {method.name} failed: {type(error).__name__}: {error}"
        ) from error


def written_spec(method: Method) -> FederatedJobSpec:
    """The job's specification as it was written, without the parameters that its method adds: what is digested."""
    return method._written


def averaging_of(method: Method) -> str:
    """The job's rule of averaging: the one that it names, or else the method's own.

    It is `uniform` with differential privacy, under which no silo says how many samples it has.
    """
    if method.spec.privacy.differential_privacy is not None:
        return "uniform"
    return method.spec.aggregation.weights or method.averaging.by_default(method.config)


def _with_parameters(spec: FederatedJobSpec, parameters: ParametersSpec | None) -> FederatedJobSpec:
    """The job's specification, with these parts of the model where it names none."""
    if parameters is None or spec.model.parameters is not None:
        return spec
    return spec.model_copy(update={"model": spec.model.model_copy(update={"parameters": parameters})})
