"""A method, bound to one job: what it declares to the outside, and its two halves.

A subclass is the method's declaration: class attributes say who it is, `Config` what a job may set. Its instance is
the method of one job, with the job's specification and its parsed configuration, and answers every question about that
job: steps, exchanges, contracts, averaging, the halves. `registry.bind` makes it. Importing it needs no torch; what
computes is imported inside `server` and `silo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.parameters import ParametersSpec
from fedsilo.data.comparison import declared_schema
from fedsilo.errors import MethodError
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.methods.building_blocks.preprocessing import preparation_step
from fedsilo.methods.building_blocks.score_sums import sums_payloads
from fedsilo.methods.contract import contract_of, encoded_contract
from fedsilo.methods.interface import (
    EVALUATE,
    LOSS,
    NAMED_PERSONAL_ACCURACY,
    PERSONAL_ACCURACY,
    PREPROCESSING,
    Exchange,
    Metric,
    Phase,
    ServerHalf,
    SiloStep,
    Step,
)
from fedsilo.methods.models import JobModels
from fedsilo.methods.reading import Mean, Sums, read_by
from fedsilo.methods.schedule import schedule
from fedsilo.methods.secure_sums import STEPS, is_summed, layout_of, masked_contract, message_contract
from fedsilo.methods.state import Scalar
from fedsilo.methods.traits import Averaging, Kept, Tasks, TrainingTraits
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import FEWEST_OF_TWO_SUMS, FEWEST_SILOS
from fedsilo.tasks.registry import metrics_of
from fedsilo.wire import Contract, ModelSignature
from fedsilo.wire.combine import Averaged

PublicData = Literal["examples", "labelled examples"]
"""What is read of a public dataset; of `examples` the labels, if there are any, are not."""

MechanismName = Literal["DP-SGD", "Gaussian"]
"""What keeps a payload private: clipped gradients of sampled examples with noise in every step, or noise on sums."""


class Method(ABC):
    """Base of all methods.

    :cvar keeps: what the halves keep between rounds.
    :cvar Config: what `spec.method.config` may hold; annotate `config` with the same class.
    :cvar tasks: learning tasks that the method has a meaning for.
    :ivar spec: the job's specification, with the `parameters` of the method's models where it names none.
    :ivar config: the job's configuration of the method.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    citation: ClassVar[str]
    keeps: ClassVar[Kept]
    Config: ClassVar[type[BaseModel]]
    tasks: ClassVar[Tasks] = Tasks()

    spec: FederatedJobSpec
    config: BaseModel

    def __init_subclass__(cls) -> None:
        """A subclass states its own tasks, or has the default: with another loss it means something else."""
        super().__init_subclass__()
        cls.tasks = cls.__dict__.get("tasks", Method.tasks)

    def __init__(self, spec: FederatedJobSpec, config: BaseModel) -> None:
        self.spec, self.config = spec, config
        self.spec = _with_parameters(spec, self.models.shared.parameters)

    @abstractmethod
    def steps(self) -> Mapping[str, Step]:
        """What silos may be asked to do, and what they may send in answer."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The job's phases in order: `spec.training.rounds` of training, and what the method needs beside them."""

    @abstractmethod
    def server(self) -> ServerHalf[Any]:
        """The server half."""

    @abstractmethod
    def silo(self) -> Mapping[str, SiloStep]:
        """The silo half: a function for each step."""

    @property
    def averaging(self) -> Averaging:
        """The rule by which means weight silos where the job names none; by default by samples."""
        return Averaging()

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
    def mechanisms(self) -> Mapping[str, MechanismName]:
        """Payload kinds -> what keeps them private where the job has `spec.privacy.differentialPrivacy`; the others
        have nothing that does, so that such a job is refused.

        A method that names one has its silo half go through it, and its replies name in `Reply.noised` the tensors that
        did: `train_model` does, and `building_blocks/private_steps`. All other tensors must be as they were handed out.
        """
        return {}

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

    @property
    def fewest_examples(self) -> int | None:
        """Fewest examples that an update of training may follow from in this job, see `training`."""
        return self.training.fewest_examples(self.spec)

    def evaluation(self) -> Step:
        """What a silo may say of the models that it scores: the job's, and its own if the method makes one."""
        own: tuple[Metric, ...] = ()
        if self.models.personal is not None:
            # By silo's name where single silos are seen.
            names = (PERSONAL_ACCURACY, *(() if self.spec.aggregation.secure else (NAMED_PERSONAL_ACCURACY,)))
            own = tuple(Metric(name, alike=True) for name in names)
        if not self.models.shared.is_model:
            return Step(metrics=own)
        scores = (*map(Metric, metrics_of(self.spec.task)), *own)
        if self.spec.evaluation.test_dataset is not None:
            return Step(metrics=scores)
        chosen = ChosenMetrics.of_job(self.spec)
        by_silo = (Metric(name, chosen.ranges.get(name), alike=True) for name in chosen.by_silo)
        summed = (Metric(name, chosen.ranges.get(name)) for name in chosen.summed)
        return Step(tuple(sums_payloads(chosen, self.spec)), (*scores, *by_silo, *summed))

    def step(self, name: str) -> Step:
        """The declared step of that name, or the evaluation.

        :raises MethodError: when the method does not declare it.
        """
        steps = self.all_steps()
        if name in steps:
            return steps[name]
        if name == EVALUATE:
            return self.evaluation()
        raise MethodError(f"method {self.name} declares no step {name!r}; it declares {sorted(steps)}")

    def all_steps(self) -> Mapping[str, Step]:
        """The method's steps with the metrics of the job's own training, and that of the job's preprocessing."""
        steps = {name: self._with_trainer_metrics(step) for name, step in self.steps().items()}
        if not self.models.scored or self.spec.data.preprocessing is None:
            return steps
        return {PREPROCESSING: preparation_step(self.spec.data), **steps}

    def _with_trainer_metrics(self, step: Step) -> Step:
        """The step, which trains if it has a loss, with what `spec.training.trainerMetrics` adds to that."""
        more = self.spec.training.trainer_metrics
        if more is None or LOSS.name not in step.names:
            return step
        return replace(step, metrics=(*step.metrics, *map(Metric, more)))

    def exchanges(self) -> list[Exchange]:
        """All exchanges of the job, in order."""
        models = self.models
        return schedule(self.spec, self.phases(), models.personal is not None, models.shared.is_model)

    def contract(self, step: str, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Contract:
        """What a silo may send in answer to a task of this step, tensor by tensor.

        Guard and aggregator each derive it for themselves; that both digests agree is checked on every task and update.

        :param settings: those of the signed task.
        :raises MethodError: when the method does not declare the step.
        """
        if step in STEPS:
            return message_contract(self.spec, step)
        plain = self._plain_contract(step, signature, settings)
        if not is_summed(self.spec, step):
            return plain
        return masked_contract(self.layout(step, plain))

    @property
    def fewest_summed(self) -> int:
        """Silos of which a sum must be, so that none of them knows of another what it sent."""
        divides = any(
            isinstance(payload.combine, Averaged) and payload.combine.over is not None
            for step in self.steps().values()
            for payload in step.payloads
        )
        return FEWEST_OF_TWO_SUMS if divides else FEWEST_SILOS

    def layout(self, step: str, summed: Contract) -> Layout:
        """The vector in which updates of a step are summed.

        :param summed: contract of an update by itself.
        """
        return layout_of(self.spec, summed, averaging_of(self), self.step(step))

    def silo_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """Settings of a silo's task that are others than those of the other silos, as the job alone determines them.

        With secure aggregation a guard derives them and refuses a task that has others, and all silos are sent the same
        beside these.

        :param exchange: that the task is of.
        :param silo: reference `namespace/name`.
        """
        return {}

    def _plain_contract(
        self, step: str, signature: ModelSignature, settings: Mapping[str, Scalar]
    ) -> Contract:
        """The same where the aggregator may see single updates."""
        dimensions = self.dimensions(signature, settings)
        contract = encoded_contract(contract_of(self.step(step), signature, dimensions), self.spec.upload)
        contract = replace(contract, algorithm=self.spec.digest_algorithm)
        if self.spec.data.class_names is None:
            return contract
        return replace(contract, schema=declared_schema(self.spec.data).digest())


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
