"""FedOpt is federated averaging with an adaptive optimiser at the server: FedAdam, FedYogi, FedAdagrad, or SGD.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2, which has no correction of the bias.

The rate must be tuned. Begin with 1 for `sgd`, which is fedavgm, and 0.01 for the others: simple-cnn on CIFAR-10
reaches 28.2 ± 2.5 with it (docs/results/tables/methods-1-reduced.md), and at 0.1, which FL-bench has, stays at
chance with the same three seeds. BatchNorm's statistics are averaged, without a moment, since a step could make a
variance negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.server_optimizers import (
    adaptive_step,
    apply_step,
    change,
    moment,
    moments,
    second_moment,
)
from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State
from fedsilo.methods.traits import UNRESTRICTED_TASKS, StateTraits


class FedOptConfig(MethodConfig):
    """Settings of FedOpt in a job's `spec.method.config`."""

    optimizer: Literal["adam", "yogi", "adagrad", "sgd"] = Field(
        default="adam",
        description="adam, yogi, adagrad: w moves by m / (sqrt(v) + tau). sgd: by its momentum m, which is "
        "beta1 m + Delta [paper, Algorithm 2; MAP's code: sgd].",
    )
    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: v begins at tau^2. released: at 0 [paper, Algorithm 2; FL-bench's code].",
    )
    server_learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Step eta of the server; when null 1 with sgd, and 0.01 with the others, whose first steps are as "
        "long as eta in every weight [paper: tuned for each dataset; FL-bench: 0.1].",
    )
    beta1: float = Field(default=0.9, ge=0, lt=1, description="Decay of the first moment [paper, Section 5].")
    beta2: float = Field(
        default=0.99,
        ge=0,
        lt=1,
        description="Decay of the second moment, of adam and yogi [paper, Section 5].",
    )
    tau: float = Field(
        default=1e-3,
        gt=0,
        le=1,
        description="Adaptivity, of all but sgd: small adapts more [paper, Section 5].",
    )

    @property
    def rate(self) -> float:
        """Learning rate eta of the server's step."""
        if self.server_learning_rate is not None:
            return self.server_learning_rate
        return 1.0 if self.optimizer == "sgd" else 0.01


@dataclass(frozen=True)
class FedOptServer(FedAvgServer):
    """Server half that keeps the trees `model` (w), `first` (m), and `second` (v) where the optimiser is adaptive."""

    config: FedOptConfig

    @override
    def start(self, job: ServerContext) -> State:
        """The initial model with m = 0, and v as the variant has it."""
        model, config = job.initial_model(), self.config
        state = State({"model": model, "first": moments(model)})
        if config.optimizer == "sgd":
            return state
        return state.with_trees(second=moments(model, config.tau**2 if config.variant == "paper" else 0.0))

    @override
    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Mean) -> State:
        """Moments of Delta, and w stepped along them."""
        w, mean, config = state.tree("model"), updates.mean("model"), self.config
        delta, rate = change(w, mean), config.rate
        if config.optimizer == "sgd":
            first = moment(state.tree("first"), delta, config.beta1)
            return state.with_trees(model=apply_step(w, mean, first, rate), first=first)
        first = moment(state.tree("first"), delta, config.beta1, damping=config.beta1)
        second = second_moment(state.tree("second"), delta, config.optimizer, config.beta2)
        step = adaptive_step(first, second, config.tau)
        return state.with_trees(model=apply_step(w, mean, step, rate), first=first, second=second)


class FedOpt(FedAvg):
    """Declaration of FedOpt, whose silos train as in FedAvg."""

    name = "fedopt"
    title = "Adaptive federated optimisation"
    use_when = "the aggregator shall step with momentum or Adam, at a rate that is tuned"
    citation = (
        "S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan. Adaptive "
        "Federated Optimization. ICLR 2021."
    )
    keeps = StateTraits("the model and the moments of its change")
    tasks = UNRESTRICTED_TASKS
    Config = FedOptConfig
    config: FedOptConfig

    @override
    def server(self) -> ServerHalf[Mean]:
        return FedOptServer(self.config)
