"""FedCM at the aggregator: the mean model, and the mean step that led there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from fedsilo.methods.components.local_steps import rate_of
from fedsilo.methods.components.server_optimizers import moments
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.fedcm.config import BY_STEPS
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State


class FedCMServer(OneModelServer):
    """FedCM's server half, which averages models and the steps that led there.

    Trees: `model` (w) and `direction` (Delta).
    """

    @override
    def start(self, job: ServerContext) -> State:
        """State of the initial model w and a direction Delta of zeros."""
        model = job.initial_model()
        return State({"model": model, "direction": moments(model)})

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model w and the direction Delta."""
        return {silo: Assignment({"model": "model", "direction": "direction"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """Delta <- sum over k of p_k (w - w_k) / (eta tau_k), and w <- sum over k of p_k w_k.

        BatchNorm's statistics have no direction.
        """
        w = state.tree("model")
        moved, towards = sums.quotient(BY_STEPS, distance=rate_of(job, exchange))
        direction = {name: towards * w[name] - moved[name] for name in state.tree("direction")}
        return state.with_trees(model=sums.mean("model"), direction=direction)
