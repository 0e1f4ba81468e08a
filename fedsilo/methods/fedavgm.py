"""FedAvgM is federated averaging with momentum at the server.

Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019:
v <- beta v + Delta, w <- w + v with Delta = sum over k of n_k / n (w_k - w).

BatchNorm's statistics are averaged, without momentum, since a step could make a variance negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.server_optimizers import apply_step, change, moment, moments
from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State
from fedsilo.methods.traits import UNRESTRICTED_TASKS, StateTraits


class FedAvgMConfig(MethodConfig):
    """Settings of FedAvgM, the rule of its momentum and the factor beta."""

    variant: Literal["paper", "moon", "fl-bench"] = Field(
        default="paper",
        description="paper: v is beta v + Delta. moon: v is beta v + (1 - beta) Delta, as in FedBE's code too. "
        "fl-bench: Nesterov's, w moves by Delta + beta v [paper, Section 4; released codes].",
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="beta [paper: 0.9; CReFF: 0.97].")


@dataclass(frozen=True)
class FedAvgMServer(FedAvgServer):
    """FedAvgM's server half, which averages with momentum. Trees: `model` (w) and `velocity` (v)."""

    config: FedAvgMConfig

    @override
    def start(self, job: ServerContext) -> State:
        """State of the initial model w and a velocity v of zeros."""
        model = job.initial_model()
        return State({"model": model, "velocity": moments(model)})

    @override
    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Mean) -> State:
        """Velocity v from the mean change Delta of the silos' models, and the model w from v."""
        w, mean, beta = state.tree("model"), updates.mean("model"), self.config.momentum
        delta = change(w, mean)
        damping = beta if self.config.variant == "moon" else 0.0
        velocity = moment(state.tree("velocity"), delta, beta, damping)
        step = moment(velocity, delta, beta) if self.config.variant == "fl-bench" else velocity
        return state.with_trees(model=apply_step(w, mean, step), velocity=velocity)


class FedAvgM(FedAvg):
    """Declaration of FedAvgM, FedAvg with momentum at the aggregator."""

    name = "fedavgm"
    title = "Federated averaging with server momentum"
    citation = (
        "T.-M. H. Hsu, H. Qi, M. Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
        "Classification. 2019."
    )
    keeps = StateTraits("the model and its velocity")
    tasks = UNRESTRICTED_TASKS
    Config = FedAvgMConfig
    config: FedAvgMConfig

    @override
    def server(self) -> ServerHalf[Mean]:
        return FedAvgMServer(self.config)
