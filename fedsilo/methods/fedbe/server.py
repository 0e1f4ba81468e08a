"""FedBE at the aggregator: models drawn round the silos', and the average that learns from all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from fedsilo.learning.distilling import Distillation
from fedsilo.methods.components.buffers import is_learned
from fedsilo.methods.components.ensembles import distill_ensemble, softmax
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.fedbe.config import FedBEConfig
from fedsilo.methods.fedbe.distribution import GaussianDistribution
from fedsilo.methods.interface import Exchange, ServerContext
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree

MOMENTUM = 0.9
"""Momentum of the distillation, as in the released code."""


@dataclass(frozen=True)
class FedBEServer(OneModelServer):
    """FedBE's server half, which distils an ensemble into the average.

    Tree: `model`, which is the student of the last round.
    """

    config: FedBEConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """The average learns the sharpened mean of what samples, silos' models and itself answer."""
        average = updates.mean("model")
        plan = partial(self._plan, job.seed("distillation", exchange.round))
        rng = np.random.default_rng(job.seed("models", exchange.round))
        teachers = self.teachers(state.tree("model"), average, updates, rng)
        student = distill_ensemble(job, average, teachers, softmax, self.sharpened_probabilities, plan)
        return state.with_trees(model=student)

    def teachers(
        self, base: Tree, average: Tree, updates: Updates, rng: np.random.Generator
    ) -> Iterator[Tree]:
        """M samples of the distribution, the silos' models, and their average; samples have its statistics."""
        statistics = {name: array for name, array in average.items() if not is_learned(name, array)}
        for sample in self._samples(base, updates, rng):
            yield sample | statistics
        for silo in updates.silos:
            yield updates.tensors(silo, "model")
        yield average

    def _samples(self, base: Tree, updates: Updates, rng: np.random.Generator) -> Iterator[Tree]:
        if self.config.distribution == "dirichlet":
            for _ in range(self.config.samples):
                weights = rng.dirichlet(np.ones(len(updates.silos)))
                yield combined_model(updates, weights)
            return
        gaussian = GaussianDistribution.of(base, (updates.tensors(silo, "model") for silo in updates.silos))
        for _ in range(self.config.samples):
            yield gaussian.sample(lambda _name, shape: rng.standard_normal(shape))

    def sharpened_probabilities(self, probabilities: Tensor) -> Tensor:
        """Probabilities p^(1/T), sharpened by the temperature T and normalised."""
        powers = probabilities ** (1 / self.config.temperature)
        return powers / powers.sum(dim=1, keepdim=True)

    def _plan(self, seed: int, examples: int) -> Distillation:
        """SGD with stochastic weight averaging."""
        config = self.config
        return Distillation(
            optimizer="sgd",
            lr=config.learning_rate,
            momentum=MOMENTUM,
            weight_decay=config.weight_decay,
            steps=config.epochs * -(-examples // config.batch_size),
            batch_size=config.batch_size,
            seed=seed,
            averaging=(config.average_after, config.average_every),
        )


def combined_model(updates: Updates, weights: np.ndarray) -> Tree:
    """sum of gamma_k w_k.

    :param weights: gamma (K,), of sum one, in the order of the silos.
    """
    return updates.weighted_sum("model", dict(zip(updates.silos, weights.tolist(), strict=True)))
