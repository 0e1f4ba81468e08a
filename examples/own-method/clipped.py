"""Averaging of clipped changes: no client moves the model further than a typical one.

w <- w + sum over k of n_k / n min(1, factor m / |d_k|) d_k, with d_k = w_k - w and m the median of |d_k|:
the norm thresholding of Sun, Kairouz, Suresh and McMahan ("Can You Really Backdoor Federated Learning?", 2019) with a
threshold that follows from the round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from fedsilo import Exchange, MethodConfig, OneModel, OneModelServer, ServerContext, State, Updates


class ClippedConfig(MethodConfig):
    """What a job may set in `spec.method.config`."""

    factor: float = Field(default=1.0, gt=0, description="Longest change, in median lengths.")


@dataclass(frozen=True)
class ClippedServer(OneModelServer):
    """The half that runs at the aggregator."""

    config: ClippedConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """The new model from the old one and what the clients sent."""
        old = state.tree("model")
        lengths = {}
        for client in updates.silos:
            new = updates.tensors(client, "model")
            lengths[client] = np.sqrt(sum(float(np.sum((new[name] - old[name]) ** 2.0)) for name in old))
        limit = self.config.factor * float(np.median(list(lengths.values())))
        total = sum(updates.samples(client) for client in updates.silos)
        weights = {
            client: updates.samples(client) / total * min(1.0, limit / max(length, 1e-12))
            for client, length in lengths.items()
        }
        moved, rest = updates.weighted_sum("model", weights), 1 - sum(weights.values())
        model = {name: (moved[name] + rest * value).astype(value.dtype) for name, value in old.items()}
        return state.with_trees(model=model)


class ClippedFedAvg(OneModel):
    """Declaration of the method: what silos send and how they train is FedAvg's."""

    name = "clipped"
    title = "Averaging of clipped changes"
    citation = (
        "Z. Sun, P. Kairouz, A. T. Suresh, H. B. McMahan. Can You Really Backdoor Federated Learning? 2019."
    )
    Config = ClippedConfig
    config: ClippedConfig

    def server(self) -> ClippedServer:
        """The aggregator's half of the method, with the job's settings."""
        return ClippedServer(self.config)
