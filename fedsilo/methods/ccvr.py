"""CCVR: classifier calibration with virtual representations, after any method that yields one model.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Algorithm 1: every silo sends statistics of its features, the aggregator draws virtual features from the
pooled Gaussian of each class and trains the classifier alone on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from fedsilo.api.job import FederatedJobSpec, MethodSpec
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Method,
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
from fedsilo.methods.pieces import preceding, statistics
from fedsilo.methods.pieces.calibration import CalibrationConfig, calibrate
from fedsilo.methods.state import Scalar, State
from fedsilo.wire import ModelSignature

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
    """The other method's server half, then the calibration. Tree: `calibrated`."""

    config: CCVRConfig
    before: ServerHalf

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
        if not preceding.is_its_last(job.spec, self.config.after, exchange):
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

    def steps(self, config: CCVRConfig) -> Mapping[str, Step]:
        """Those of the method before, and the statistics."""
        method, before = preceding.of(config.after)
        return {**method.steps(before), STATISTICS: Step(statistics.payloads(config.covariance))}

    def phases(self, spec: FederatedJobSpec, config: CCVRConfig) -> tuple[Phase, ...]:
        """Those of the method before, and one exchange with all silos."""
        method, before = preceding.of(config.after)
        return (*method.phases(spec, before), Phase("calibration", 1, STATISTICS, everyone=True))

    def server(self, config: CCVRConfig) -> CCVRServer:
        """The method before, then the calibration."""
        method, before = preceding.of(config.after)
        return CCVRServer(config, method.server(before))

    def silo(self, config: CCVRConfig) -> Mapping[str, SiloStep]:
        """The steps of the method before, and the statistics under the trained model."""
        method, before = preceding.of(config.after)

        def disclose(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            del private
            return statistics.disclose(silo, task, config.covariance)

        return {**method.silo(before), STATISTICS: disclose}

    def personalises(self, config: CCVRConfig) -> bool:
        """As the method before."""
        method, before = preceding.of(config.after)
        return method.personalises(before)

    def dimensions(
        self, signature: ModelSignature, config: CCVRConfig, settings: Mapping[str, Scalar]
    ) -> Mapping[str, int]:
        """Those of the method before."""
        method, before = preceding.of(config.after)
        return method.dimensions(signature, before, settings)

    def check(self, spec: FederatedJobSpec, config: CCVRConfig) -> list[tuple[str, object, str, str]]:
        """What holds of the method before, and no power of negative features."""
        faults = preceding.check(spec, self, config.after)
        if config.tukey_beta is not None and not config.relu:
            problem = "transforms features that may be negative"
            faults.append(("spec.method.config.tukeyBeta", config.tukey_beta, problem, "set relu: true"))
        return faults


METHOD = CCVR()
