"""Averaging with control variates: the aggregator's half.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsilo.methods.building_blocks.buffers import is_statistic, zero_like
from fedsilo.methods.building_blocks.control_variates import ControlVariateRule
from fedsilo.methods.building_blocks.local_steps import STEPS, rate_of, steps_of
from fedsilo.methods.building_blocks.sizes import SHARE, SIZES, size_of, with_sizes
from fedsilo.methods.fedavg import FedAvgServer
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Updates
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.secure_aggregation.layout import Quotient

BY_STEPS = Quotient(STEPS, "uniform")
"""Every silo's model over its steps."""


@dataclass(frozen=True)
class ControlledServer(FedAvgServer):
    """Trees: `model` (w) and `control` (c).

    :param server_rate: eta_g.
    """

    rule: ControlVariateRule
    server_rate: float

    def start(self, job: ServerContext) -> State:
        """The initial model; c = 0."""
        model = job.initial_model()
        return State({"model": model, "control": zero_like(model)})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and c."""
        if exchange.phase.step == SIZES:
            return {silo: Assignment() for silo in silos}
        trees = {"model": "model", "control": "control"}
        settings: dict[str, dict[str, Scalar]] = {silo: {} for silo in silos}
        if self.rule.by_size:
            settings = {silo: {SHARE: size_of(state, silo)} for silo in silos}
        return {silo: Assignment(trees, settings[silo]) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """w <- w + eta_g mean(y_k - w), and c <- c + 1 / N times the sum of the changes of the silos' variates.

        BatchNorm's statistics have no variates and are averaged.

        :param state: with the value `samples` of all silos where the rule counts by size.
        """
        if exchange.phase.step == SIZES:
            return with_sizes(state, updates)
        w, c = state.tree("model"), state.tree("control")
        mean = job.mean(updates, "model")
        model = {
            name: mean[name] if is_statistic(name) else w[name] + self.server_rate * (mean[name] - w[name])
            for name in w
        }
        moved, pull, counted = self._moved(state, updates, _rate(job, exchange, self.rule), job)
        n = updates.count if self.rule.over_sampled else len(job.silos)
        towards, size = pull / n, counted / n
        control = {name: c[name] + (towards * w[name] - moved[name] / n) - size * c[name] for name in c}
        return state.with_trees(model=model, control=control)

    def _moved(
        self, state: State, updates: Updates, rate: float, job: ServerContext
    ) -> tuple[Tree, float, float]:
        """Sums over silos of v_k y_k / (tau_k eta), of v_k / (tau_k eta), and of v_k, which is 1 or the silo's size.

        :param rate: eta.
        """
        if not self.rule.by_size:
            return *job.quotient(updates, BY_STEPS, distance=rate), float(updates.count)
        counted = {silo: size_of(state, silo) for silo in updates.silos}
        pull = {silo: counted[silo] / (steps_of(updates, silo) * rate) for silo in updates.silos}
        return updates.weighted_sum("model", pull), sum(pull.values()), sum(counted.values())


def _rate(job: ServerContext, exchange: Exchange, rule: ControlVariateRule) -> float:
    return job.spec.training.optimizer.learning_rate if rule.base_rate else rate_of(job, exchange)
