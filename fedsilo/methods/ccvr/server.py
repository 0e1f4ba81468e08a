"""CCVR at the aggregator: the method before it, then the calibration of its classifier on virtual features.

Section 4.2 and Algorithm 1 of the paper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedsilo.learning.linear import LinearTraining, train_classifier
from fedsilo.methods.ccvr.config import STATISTICS, CCVRConfig
from fedsilo.methods.ccvr.statistics import ClassPool, pool
from fedsilo.methods.ccvr.virtual import virtual_features
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Phase,
    ServerContext,
    ServerHalf,
    Snapshot,
)
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State, Tree

Read = TypeVar("Read", bound=Mean)

log = logging.getLogger("fedsilo.methods")


@dataclass(frozen=True)
class CCVRServer(Generic[Read]):
    """The other method's server half, then the calibration. Tree: `calibrated`.

    :param last: the other method's last phase, after which its model is trained; None where there is a model already.
    :param sent: the statistics of each silo, or of all together.
    """

    config: CCVRConfig
    base: ServerHalf[Read]
    last: Phase | None
    sent: Callable[..., Iterable[tuple[str, Tree]]]

    def start(self, job: ServerContext) -> State:
        """Initial state of the method before, whose model is set aside at once where nothing is trained."""
        state = self.base.start(job)
        return self._set_aside(job, state) if self.last is None else state

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Assignments of the method before, then the trained model to every silo, for its features."""
        if exchange.phase.step != STATISTICS:
            return self.base.assign(job, state, exchange, silos)
        return {silo: Assignment({"model": "calibrated"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, read: Read) -> State:
        """State after a round of the method before, or after the calibration.

        The last model of the method before is set aside, and it is the one that is calibrated.
        """
        if exchange.phase.step == STATISTICS:
            kinds = ("class_means", *(() if self.config.covariance == "none" else ("class_covariances",)))
            pooled = pool(
                job, self.sent(read, *kinds), self.config.covariance
            )  # mu_c and Sigma_c of the pool
            return state.with_trees(calibrated=calibrate(job, self.config, state.tree("calibrated"), pooled))
        state = self.base.aggregate(job, state, exchange, read)
        if self.last is None or exchange.phase.name != self.last.name:
            return state
        return self._set_aside(job, state) if exchange.phase_round == exchange.phase_rounds else state

    def _set_aside(self, job: ServerContext, state: State) -> State:
        return state.with_trees(calibrated=dict(self.base.model(job, state).tree))

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The calibrated model, or what the method before has so far."""
        if "calibrated" in state.trees:
            return Snapshot(state.tree("calibrated"))
        return self.base.model(job, state)


def calibrate(job: ServerContext, config: CCVRConfig, model: Tree, pooled: Mapping[int, ClassPool]) -> Tree:
    """The model with its classifier trained on virtual features, starting from the trained classifier.

    A class that no silo disclosed has no virtual features and takes no part in the softmax, so that its weights
    stay as they are.
    """
    if not pooled:
        log.warning(
            "no silo disclosed statistics of a class: the classifier stays as it was trained; lower minSamplesPerClass "
            "of job and silos, if their samples of a class are too few"
        )
        return model
    training = job.spec.training
    features, labels = virtual_features(config, pooled, job.seed("virtual features"))
    trained = train_classifier(
        model["classifier.weight"],
        model.get("classifier.bias"),
        features,
        labels,
        plan=LinearTraining(
            lr=config.learning_rate or training.optimizer.learning_rate,
            momentum=training.optimizer.momentum if config.momentum is None else config.momentum,
            weight_decay=config.weight_decay,
            batch_size=config.batch_size or training.batch_size,
            epochs=config.epochs,
            seed=job.seed("calibration"),
        ),
    )
    return {**model, **trained}
