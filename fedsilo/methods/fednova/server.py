"""FedNova at the aggregator: w <- w - tau_eff times the sum over k of p_k d_k, with d_k = (w - w_k) / a_k."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from fedsilo.methods.components.local_steps import STEPS
from fedsilo.methods.components.server_optimizers import apply_step, change, moment, moments
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.fednova.config import BY_NORMALIZER, NORMALIZER, FedNovaConfig
from fedsilo.methods.interface import Exchange, ServerContext
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State


@dataclass(frozen=True)
class FedNovaServer(OneModelServer):
    """Server half that keeps the trees `model` (w), and `velocity` where the server has momentum."""

    config: FedNovaConfig

    @override
    def start(self, job: ServerContext) -> State:
        """The initial model, and a velocity of zeros where the server has momentum."""
        state = super().start(job)
        if not self.config.server_momentum:
            return state
        return state.with_trees(velocity=moments(state.tree("model")))

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """w after the step of eq. 6, with momentum where the server has it.

        The step is a weighted sum of the models; tau_eff is the mean of a_k, or of tau_k with a proximal term.
        """
        w, mean = state.tree("model"), sums.mean("model")
        effective = sums.mean_metric(STEPS if self.config.mu else NORMALIZER)
        moved, towards = sums.quotient(BY_NORMALIZER, scale=effective)
        step = {name: moved[name] - towards * w[name] for name in change(w, mean)}
        if not self.config.server_momentum:
            return state.with_trees(model=apply_step(w, mean, step))
        velocity = moment(state.tree("velocity"), step, self.config.server_momentum)
        return state.with_trees(model=apply_step(w, mean, velocity), velocity=velocity)
