"""CCVR: classifier calibration with virtual representations, after any method that yields one model.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Algorithm 1: every silo sends statistics of its features, the aggregator draws virtual features from the
pooled Gaussian of each class and trains the classifier alone on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from fedsilo.api.job import MethodSpec
from fedsilo.errors import ManifestInvalid
from fedsilo.methods import registry
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Phase,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
    Snapshot,
    Step,
    Updates,
)
from fedsilo.methods.method import Method
from fedsilo.methods.pieces import statistics
from fedsilo.methods.pieces.calibration import CalibrationConfig, calibrate
from fedsilo.methods.state import Scalar, State
from fedsilo.wire import ModelSignature

AFTER = "spec.method.config.after"
"""Where a job names the method before."""

STATISTICS = "statistics"
"""Step in which the silos disclose statistics of their features."""


class CCVRConfig(CalibrationConfig):
    """Settings of the calibration, and the method before it."""

    after: MethodSpec = Field(
        default=MethodSpec(name="fedavg"),
        description="Method that trains the model; it must yield one model [paper: any; experiments with FedAvg].",
    )


@dataclass(frozen=True)
class CCVRServer:
    """The other method's server half, then the calibration. Tree: `calibrated`.

    :param last: the other method's last phase, after which its model is trained.
    """

    config: CCVRConfig
    before: ServerHalf
    last: Phase

    def start(self, job: ServerContext) -> State:
        """As the method before."""
        return self.before.start(job)

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """As the method before; then the trained model, for its features."""
        if exchange.phase.step != STATISTICS:
            return self.before.assign(job, state, exchange, silos)
        return {silo: Assignment({"model": "calibrated"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """As the method before, whose last model is set aside; then calibrate that."""
        if exchange.phase.step == STATISTICS:
            pooled = statistics.pool(job, updates, self.config.covariance)  # mu_c and Sigma_c of the pool
            return state.with_trees(calibrated=calibrate(job, self.config, state.tree("calibrated"), pooled))
        state = self.before.aggregate(job, state, exchange, updates)
        if exchange.phase.name != self.last.name or exchange.phase_round < exchange.phase_rounds:
            return state
        return state.with_trees(calibrated=dict(self.before.model(job, state).tree))

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The calibrated model, or what the method before has so far."""
        if "calibrated" in state.trees:
            return Snapshot(state.tree("calibrated"))
        return self.before.model(job, state)


class CCVR(Method):
    """Declaration of CCVR."""

    name = "ccvr"
    title = "Classifier calibration with virtual representations"
    citation = (
        "M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. No Fear of Heterogeneity: Classifier Calibration for "
        "Federated Learning with Non-IID Data. NeurIPS 2021."
    )
    at_aggregator = "what the method before keeps, and the calibrated model"
    in_silo = "what the method before keeps"
    Config = CCVRConfig
    config: CCVRConfig

    @cached_property
    def before(self) -> Method:
        """The method that trains the model, bound to this job with the settings that `after` gives it.

        :raises ManifestInvalid: when there is none of the name, or it does not take the settings.
        """
        return registry.bind(self.spec.model_copy(update={"method": self.config.after}))

    def steps(self) -> Mapping[str, Step]:
        """Those of the method before, and the statistics."""
        return {**self.before.steps(), STATISTICS: Step(statistics.payloads(self.config.covariance))}

    def phases(self) -> tuple[Phase, ...]:
        """Those of the method before, and one exchange with all silos."""
        return (*self.before.phases(), Phase("calibration", 1, STATISTICS, everyone=True))

    def server(self) -> CCVRServer:
        """The method before, then the calibration."""
        return CCVRServer(self.config, self.before.server(), self.before.phases()[-1])

    def silo(self) -> Mapping[str, SiloStep]:
        """The steps of the method before, and the statistics under the trained model."""

        def disclose(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            del private
            return statistics.disclose(silo, task, self.config.covariance)

        return {**self.before.silo(), STATISTICS: disclose}

    @property
    def personalises(self) -> bool:
        """As the method before."""
        return self.before.personalises

    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """Those of the method before."""
        return self.before.dimensions(signature, settings)

    def _check_before(self) -> list[tuple[str, object, str, str]]:
        """It exists, takes its settings, yields one model of the job's architecture, and averages as the job does."""
        try:
            before = self.before
        except ManifestInvalid as error:
            return [(AFTER, self.config.after.name, str(error), "name a method and settings that it knows")]
        faults = [(fault[0].replace("spec.method", AFTER), *fault[1:]) for fault in before.check()]
        if type(before).architecture is not Method.architecture or before.name == self.name:
            remedy = "use fedavg or a method like it"
            faults.append((f"{AFTER}.name", before.name, "does not yield one model", remedy))
        rule = before.default_averaging
        if rule != self.default_averaging and self.spec.aggregation.weights is None:
            problem = f"is not set, and {before.name} averages by the rule {rule}"
            faults.append(("spec.aggregation.weights", None, problem, f"write {rule} here"))
        return faults

    def check(self) -> list[tuple[str, object, str, str]]:
        """What holds of the method before, and no power of negative features."""
        faults = self._check_before()
        if self.config.tukey_beta is not None and not self.config.relu:
            problem = "transforms features that may be negative"
            faults.append(("spec.method.config.tukeyBeta", self.config.tukey_beta, problem, "set relu: true"))
        return faults
