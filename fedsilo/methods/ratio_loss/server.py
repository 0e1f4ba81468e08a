"""Ratio Loss at the aggregator: which classes' examples change the classifier in a way that others' do not."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.learning.examples import Examples
from fedsilo.learning.models import to_tree
from fedsilo.learning.training import LocalTraining, fit, has_batch_norm
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.ratio_loss.config import WEIGHTS, RatioLossConfig
from fedsilo.methods.ratio_loss.monitor import Monitor
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State, Tree

log = logging.getLogger("fedsilo.methods")

CLASSIFIER = "classifier.weight"


@dataclass(frozen=True)
class RatioLossServer(OneModelServer):
    """Server half that keeps the trees `model`, and `weights`, which are the classes' weights a, (C,)."""

    config: RatioLossConfig

    @override
    def start(self, job: ServerContext) -> State:
        """In the first round every class weighs 1."""
        weights = np.ones(job.signature.classes, np.float32)
        return State({"model": job.initial_model(), WEIGHTS: {WEIGHTS: weights}})

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and a."""
        return dict.fromkeys(silos, Assignment({"model": "model", WEIGHTS: WEIGHTS}))

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """w as in FedAvg; a of the new w, unless no round follows."""
        model = sums.mean("model")
        if exchange.phase_round == exchange.phase_rounds:
            return state.with_trees(model=model)
        return state.with_trees(model=model, **{WEIGHTS: {WEIGHTS: self.weights(job, model, exchange)}})

    def weights(self, job: ServerContext, model: Tree, exchange: Exchange) -> np.ndarray:
        """a_c = alpha + beta r_c, (C,); 1 for a class of which there is no public example."""
        weights = np.ones(job.signature.classes, np.float32)
        monitor = Monitor(model[CLASSIFIER].shape)
        for label, change in _changes(job, model, exchange):
            monitor.add(label, change)
        for label, ratio in monitor.ratios().items():
            weights[label] = self.config.alpha + self.config.beta * ratio
        if missing := sorted(set(range(len(weights))) - monitor.ratios().keys()):
            names = ", ".join(map(str, missing))
            log.warning("too few public examples of the classes %s: they weigh 1; add some", names)
        return weights


def _changes(job: ServerContext, model: Tree, exchange: Exchange) -> Iterator[tuple[int, np.ndarray]]:
    """Class -> how its public examples alone change the classifier, with the training that silos do."""
    for label, examples in _of_each_class(job.public_examples()):
        seed = job.seed("public", exchange.round, label)
        plan = LocalTraining.of(
            job.spec.training, round=exchange.phase_round, rounds=exchange.phase_rounds, seed=seed
        )
        module = job.module(model)
        if len(examples) > 1 or not has_batch_norm(module):  # it needs two examples in a batch
            fit(module, examples, plan)
            yield label, to_tree(module)[CLASSIFIER] - model[CLASSIFIER]


def _of_each_class(examples: Examples) -> Iterator[tuple[int, Examples]]:
    """Class -> its first examples, as many as there are of the rarest class."""
    labels = examples.labels.cpu().numpy()
    present, counts = np.unique(labels, return_counts=True)
    for label in present:
        yield int(label), examples.take(np.flatnonzero(labels == label)[: counts.min()])
