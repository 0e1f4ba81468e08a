"""pFedMe at the aggregator: the mean of the silos' models, and a step past it or short of it."""

from __future__ import annotations

from dataclasses import dataclass

from fedsilo.methods.components.buffers import is_learned
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.interface import Exchange, ServerContext
from fedsilo.methods.pfedme.config import PFedMeConfig
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State


@dataclass(frozen=True)
class PFedMeServer(OneModelServer):
    """w <- (1 - beta) w + beta times the mean of w_k. Tree: `model`."""

    config: PFedMeConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The mean itself where beta is 1, and of BatchNorm's statistics always."""
        old, mean, beta = state.tree("model"), sums.mean("model"), self.config.beta
        if beta != 1:
            mean = {
                name: ((1 - beta) * old[name] + beta * w).astype(w.dtype) if is_learned(name, w) else w
                for name, w in mean.items()
            }
        return state.with_trees(model=mean)
