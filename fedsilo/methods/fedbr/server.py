"""FedBR at the aggregator: model and projection are averaged; the proxies of mixtures are made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.methods.components.classifiers import initial_tensors
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.fedbr.config import THETA, FedBRConfig
from fedsilo.methods.fedbr.loss import projection
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State, Tree


@dataclass(frozen=True)
class FedBRServer(OneModelServer):
    """FedBR's server half, which averages the model and the projection.

    Trees: `model` (phi, omega), `projection` (theta) and for mixtures `proxies`.
    """

    config: FedBRConfig

    @override
    def start(self, job: ServerContext) -> State:
        """One initial model and projection for all; means of uniform noise where the silos mix."""
        state = super().start(job)
        if self.config.contrast_weight:
            state = state.with_trees(projection=self._projection(job))
        if self.config.pseudo_data == "mixture":
            state = state.with_trees(proxies={"proxies": self._proxies(job)})
        return state

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast all trees of the state, of which a silo fetches the proxies once."""
        return {silo: Assignment({name: name for name in state.trees}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """Average phi, omega and theta."""
        mean = sums.mean("model")
        state = state.with_trees(model={name: mean[name] for name in state.tree("model")})
        if self.config.contrast_weight:
            state = state.with_trees(projection={name: mean[name] for name in state.tree("projection")})
        return state

    @staticmethod
    def _projection(job: ServerContext) -> Tree:
        width = job.signature.feature
        layers = initial_tensors(lambda: projection(width), job.seed("projection"))
        return {THETA + name: array for name, array in layers.items()}

    def _proxies(self, job: ServerContext) -> np.ndarray:
        """Proxies for mixtures as means of inputs ~ U[0, 1], (B, *input shape)."""
        rng, shape = np.random.default_rng(job.seed("proxies")), job.spec.data.input_shape
        size = job.spec.training.batch_size
        total = np.zeros((size, *shape), np.float32)
        for _ in range(self.config.averaged):
            total += rng.random((size, *shape), dtype=np.float32)
        return total / np.float32(self.config.averaged)
