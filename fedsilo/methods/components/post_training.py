"""A method that comes after another one: what follows from the method before, which the job names in `after`.

The method before trains the model; the one after it changes what comes of that, with or without asking the silos for
more. Everything that the method before declares holds of the whole job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field
from typing_extensions import override

from fedsilo.api.faults import ABSENT_VALUE, Fault, Finding, ManifestFaults
from fedsilo.api.job import FederatedJobSpec, MethodSpec
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange, MethodConfig, Phase, SiloStep
from fedsilo.methods.method import Method, PublicData
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import Step
from fedsilo.methods.traits import TrainingTraits
from fedsilo.wire import ModelSignature

AFTER_FIELD = "spec.method.config.after"
"""Where a job names the method before."""

DEFAULT_BASE = MethodSpec(name="fedavg")
"""The method before where a job names none."""


class AfterConfig(MethodConfig):
    """Settings of a method that comes after another one."""

    after: MethodSpec = Field(
        default=DEFAULT_BASE,
        description="Method that trains the model; it must yield one model; none where training.rounds is 0 [papers: "
        "any; experiments with FedAvg].",
    )


class PostTraining(Method):
    """Base of such methods; a subclass adds its own steps and phases to those of the method before.

    :ivar base: the method that trains the model, bound to this job with the settings that `after` gives it.
    """

    config: AfterConfig

    def __init__(self, spec: FederatedJobSpec, config: AfterConfig) -> None:
        """Bind the method before, too.

        :raises ManifestFaults: when there is none of the name, it does not take the settings, or nothing may follow it.
        """
        try:
            self.base = registry.bind(spec.model_copy(update={"method": config.after}))
        except ManifestFaults as error:
            raise ManifestFaults(
                replace(fault, path=_under_after(fault.path)) for fault in error.faults
            ) from error
        super().__init__(spec, config)
        if (wrong := self._base_problem()) is not None:
            raise ManifestFaults(
                [Fault("", f"method {self.name}", f"{AFTER_FIELD}.name", config.after.name, *wrong)]
            )

    def _base_problem(self) -> tuple[str, str] | None:
        """Why the method before cannot stand there, and the remedy."""
        yielded = self.base.models.shared
        if yielded.architecture is not None or not yielded.is_model or yielded.parameters is not None:
            return "does not yield one model", "use fedavg or a method like it"
        if self.name in names_of(self.base):
            return f"would come after {self.name} itself", f"name {self.name} once"
        return None

    @property
    def is_calibration_only(self) -> bool:
        """Whether nothing comes before: no round of training, so that the job's initial weights are the model."""
        return self.spec.training.rounds == 0 and not isinstance(self.base, PostTraining)

    @override
    def steps(self) -> Mapping[str, Step]:
        """The steps of the method before."""
        return {} if self.is_calibration_only else self.base.steps()

    @override
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the method before."""
        return () if self.is_calibration_only else self.base.phases()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """The steps of the method before."""
        return {} if self.is_calibration_only else self.base.silo()

    @property
    @override
    def reads(self) -> type[Mean]:
        """Sums, or single silos where the method before reads them."""
        return Updates if not self.is_calibration_only and self.base.reads is Updates else Sums

    @property
    @override
    def training(self) -> TrainingTraits:
        """How silos train in the method before, since nothing else is trained there."""
        return replace(self.base.training, mechanisms={}) if self.is_calibration_only else self.base.training

    @property
    @override
    def public_data(self) -> PublicData | None:
        return None if self.is_calibration_only else self.base.public_data

    @property
    @override
    def models(self) -> JobModels:
        """The silos' own models of the method before, and the model for all, of which this one changes all parts."""
        return replace(self.base.models, shared=SharedModel())

    @override
    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """Dimensions of the method before."""
        return self.base.dimensions(signature, settings)

    @override
    def silo_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """Settings by which the method before distinguishes silos."""
        return self.base.silo_settings(exchange, silo)

    @override
    def check(self) -> list[Finding]:
        """Faults of the method before, which averages as the job does; without a round of training there is a model."""
        faults = [(_under_after(fault[0]), *fault[1:]) for fault in self.base.check()]
        if self.is_calibration_only:
            faults += self._check_existing()
        rule = self.base.averaging.by_default(self.base.config)
        if rule != self.averaging.by_default(self.config) and self.spec.aggregation.weights is None:
            problem = f"is not set, and {self.base.name} averages by the rule {rule}"
            faults.append(("spec.aggregation.weights", ABSENT_VALUE, problem, f"write {rule} here"))
        return faults

    @override
    def check_sums(self) -> list[Finding]:
        """What of the method before has no meaning with sums over silos alone."""
        return [(_under_after(fault[0]), *fault[1:]) for fault in self.base.check_sums()]

    def _check_existing(self) -> Iterator[Finding]:
        if self.spec.model.initial_weights is None:
            problem = f"leaves {self.name} a model that nobody has trained"
            remedy = "name a model in spec.model.initialWeights, or use 1 or more"
            yield "spec.training.rounds", 0, problem, remedy
        if self.config.after != DEFAULT_BASE:
            problem = "has nothing to do in 0 rounds of training"
            yield f"{AFTER_FIELD}.name", self.config.after.name, problem, "remove after, or use 1 or more"


def _under_after(path: str) -> str:
    """Where the job has that field of the method before."""
    return path.replace("spec.method", AFTER_FIELD, 1)


def base_method(method: Method) -> Method:
    """The method that trains the model: this one, unless it comes after another."""
    while isinstance(method, PostTraining) and not method.is_calibration_only:
        method = method.base
    return method


def is_calibration_only(method: Method) -> bool:
    """Whether the job trains nothing, so that its initial weights are the model."""
    return isinstance(method, PostTraining) and method.is_calibration_only


def names_of(method: Method) -> tuple[str, ...]:
    """Names of the method and, where it comes after others, of those."""
    return (method.name, *(names_of(method.base) if isinstance(method, PostTraining) else ()))
