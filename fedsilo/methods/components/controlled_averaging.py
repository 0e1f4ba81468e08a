"""Averaging with control variates: the aggregator's half.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from fedsilo.methods.components.buffers import zero_like
from fedsilo.methods.components.control_variates import ControlVariateRule
from fedsilo.methods.components.local_steps import STEPS, rate_of, steps_of
from fedsilo.methods.components.sizes import SHARE, SIZES, size_of, with_sizes
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Sums, Updates
from fedsilo.methods.state import State, Tree
from fedsilo.wire.combine import Quotient

BY_STEPS = Quotient(STEPS, "uniform")
"""Every silo's model over its steps."""


@dataclass(frozen=True)
class _ControlVariateServer(OneModelServer):
    rule: ControlVariateRule
    server_rate: float

    @override
    def start(self, job: ServerContext) -> State:
        """State of the initial model w and a server control variate c of zeros."""
        model = job.initial_model()
        return State({"model": model, "control": zero_like(model)})

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model w and the server control variate c."""
        return dict.fromkeys(silos, Assignment({"model": "model", "control": "control"}))

    def _updated_state(
        self,
        job: ServerContext,
        state: State,
        mean: Tree,
        moved: Tree,
        pull: float,
        counted: float,
        count: int,
    ) -> State:
        """w <- w + eta_g mean(y_k - w), and c <- c + 1 / N times the sum of the changes of the silos' variates.

        BatchNorm's statistics, integers and booleans have no variates and are averaged.

        :param moved: sum over silos of v_k y_k / (tau_k eta), where v_k is 1 or the silo's size.
        :param pull: that of v_k / (tau_k eta).
        :param counted: that of v_k.
        :param count: silos that answered.
        """
        w, c = state.tree("model"), state.tree("control")
        model = {
            name: w[name] + self.server_rate * (mean[name] - w[name]) if name in c else mean[name]
            for name in w
        }
        n = count if self.rule.over_sampled else len(job.silos)
        towards, size = pull / n, counted / n
        control = {name: c[name] + (towards * w[name] - moved[name] / n) - size * c[name] for name in c}
        return state.with_trees(model=model, control=control)


class ControlledServer(_ControlVariateServer):
    """Averaging with control variates in which silos count alike. Trees: `model` (w) and `control` (c).

    :param server_rate: eta_g.
    """

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """w and c, see `_moved`."""
        mean = sums.mean("model")
        moved, pull = sums.quotient(BY_STEPS, distance=_rate(job, exchange, self.rule))
        return self._updated_state(job, state, mean, moved, pull, float(sums.count), sums.count)


class ControlledBySizeServer(_ControlVariateServer):
    """Averaging with control variates in which silos count by size.

    Trees: `model` (w) and `control` (c); value: `samples` of all silos.
    """

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and c, and to each silo its v_k; nothing where silos state their sizes."""
        if exchange.phase.step == SIZES:
            return dict.fromkeys(silos, Assignment())
        given = super().assign(job, state, exchange, silos)
        return {silo: replace(given[silo], settings={SHARE: size_of(state, silo)}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """The sizes, then w and c, see `_moved`."""
        if exchange.phase.step == SIZES:
            return with_sizes(state, updates)
        rate, mean = _rate(job, exchange, self.rule), updates.mean("model")
        counted = {silo: size_of(state, silo) for silo in updates.silos}
        pull = {silo: counted[silo] / (steps_of(updates, silo) * rate) for silo in updates.silos}
        moved = updates.weighted_sum("model", pull)
        return self._updated_state(
            job, state, mean, moved, sum(pull.values()), sum(counted.values()), updates.count
        )


def _rate(job: ServerContext, exchange: Exchange, rule: ControlVariateRule) -> float:
    return job.spec.training.optimizer.learning_rate if rule.base_rate else rate_of(job, exchange)
