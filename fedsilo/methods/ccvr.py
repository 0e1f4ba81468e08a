"""CCVR: classifier calibration with virtual representations, after any method that yields one model.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Algorithm 1: every silo sends statistics of its features, the aggregator draws virtual features from the
pooled Gaussian of each class and trains the classifier alone on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from fedsilo.errors import ManifestInvalid
from fedsilo.manifests.job import FederatedJobSpec, MethodSpec
from fedsilo.methods import registry
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Method,
    MethodConfig,
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
from fedsilo.methods.pieces import statistics
from fedsilo.methods.pieces.statistics import Covariance, Pooled
from fedsilo.methods.state import State, Tree

STATISTICS = "statistics"
"""Step in which the silos disclose statistics of their features."""


class CCVRConfig(MethodConfig):
    """Settings of the calibration, and the method before it."""

    after: MethodSpec = Field(
        default=MethodSpec(name="fedavg"),
        description="Method that trains the model; it must yield one model.",
    )
    covariance: Covariance = Field(
        default="full", description="full: d x d per class; diagonal: d; none: means and one shared variance."
    )
    shared_variance: float = Field(
        default=1.0, gt=0, description="Variance of every feature when covariance is none."
    )
    virtual_per_class: int = Field(
        default=100,
        ge=1,
        description="Virtual features M_c; the paper has 100, 500 and 1000 for its datasets.",
    )
    epochs: int = Field(
        default=10, ge=1, description="Passes over the virtual features; the paper gives no number."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="Of the calibration; the job's when null."
    )
    relu: bool = Field(
        default=False, description="Cut virtual features at zero, as real ones after a ReLU are."
    )
    tukey_beta: float | None = Field(
        default=None,
        ge=0,
        description="Tukey's transform x^beta of virtual features, log x for 0; needs relu.",
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
            pooled = statistics.pool(job, updates, self.config.covariance)
            return state.with_trees(calibrated=calibrate(job, self.config, state.tree("calibrated"), pooled))
        state = self.before.aggregate(job, state, exchange, updates)
        method, before = _before(self.config)
        last = method.phases(job.spec, before)[-1]
        if exchange.phase.name != last.name or exchange.phase_round != exchange.phase_rounds:
            return state
        return state.with_trees(calibrated=dict(self.before.model(job, state).tree))

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The calibrated model, or what the method before has so far."""
        if "calibrated" in state.trees:
            return Snapshot(state.tree("calibrated"))
        return self.before.model(job, state)


def calibrate(job: ServerContext, config: CCVRConfig, model: Tree, pooled: Mapping[int, Pooled]) -> Tree:
    """The model with its classifier trained on virtual features, starting from the trained classifier.

    A class that no silo disclosed has no virtual features and takes no part in the softmax, so that its weights
    stay as they are.
    """
    from fedsilo.learning.linear import LinearTraining, train_classifier

    if not pooled:
        return model
    rng = np.random.default_rng(job.seed("virtual features"))
    variance = config.shared_variance if config.covariance == "none" else None
    drawn = [
        statistics.gaussian_features(one, config.virtual_per_class, variance, rng)
        for _, one in sorted(pooled.items())
    ]
    features = np.concatenate(drawn)
    if config.relu:
        features = np.maximum(features, 0)
    if config.tukey_beta is not None:
        features = features**config.tukey_beta if config.tukey_beta else np.log(np.maximum(features, 1e-6))
    trained = train_classifier(
        model["classifier.weight"],
        model.get("classifier.bias"),
        features.astype(np.float32),
        np.repeat(sorted(pooled), config.virtual_per_class),
        plan=LinearTraining(
            lr=config.learning_rate or job.spec.training.optimizer.learning_rate,
            momentum=job.spec.training.optimizer.momentum,
            batch_size=job.spec.training.batch_size,
            epochs=config.epochs,
            seed=job.seed("calibration"),
        ),
    )
    return {**model, **trained}


class CCVR(Method):
    """Declaration of CCVR."""

    name = "ccvr"
    title = "Classifier calibration with virtual representations"
    citation = (
        "M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. No Fear of Heterogeneity: Classifier Calibration for "
        "Federated Learning with Non-IID Data. NeurIPS 2021."
    )
    Config = CCVRConfig

    def steps(self, config: CCVRConfig) -> Mapping[str, Step]:
        """Those of the method before, and the statistics."""
        method, before = _before(config)
        return {**method.steps(before), STATISTICS: Step(statistics.payloads(config.covariance))}

    def phases(self, spec: FederatedJobSpec, config: CCVRConfig) -> tuple[Phase, ...]:
        """Those of the method before, and one exchange with all silos."""
        method, before = _before(config)
        return (*method.phases(spec, before), Phase("calibration", 1, STATISTICS, everyone=True))

    def server(self, config: CCVRConfig) -> CCVRServer:
        """The method before, then the calibration."""
        method, before = _before(config)
        return CCVRServer(config, method.server(before))

    def silo(self, config: CCVRConfig) -> Mapping[str, SiloStep]:
        """The steps of the method before, and the statistics under the trained model."""
        method, before = _before(config)

        def disclose(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            del private
            return statistics.disclose(silo, task, config.covariance)

        return {**method.silo(before), STATISTICS: disclose}

    def check(self, spec: FederatedJobSpec, config: CCVRConfig) -> list[tuple[str, object, str, str]]:
        """The method before exists, likes its settings and yields one model of the job's architecture."""
        path = "spec.method.config.after"
        try:
            method, before = _before(config)
        except ManifestInvalid as error:
            return [(path, config.after.name, str(error), "name a method and settings that it knows")]
        faults = [(fault[0].replace("spec.method", path), *fault[1:]) for fault in method.check(spec, before)]
        if type(method).architecture is not Method.architecture or method.name == self.name:
            faults.append(
                (f"{path}.name", method.name, "does not yield one model", "use fedavg or a method like it")
            )
        if config.tukey_beta is not None and not config.relu:
            problem = "transforms features that may be negative"
            faults.append(("spec.method.config.tukeyBeta", config.tukey_beta, problem, "set relu: true"))
        return faults


def _before(config: CCVRConfig) -> tuple[Method, Any]:
    method = registry.get(config.after.name)
    return method, registry.parse(method, config.after.config)


METHOD = CCVR()
