"""FedDyn at the aggregator: Algorithm 1 with -h / alpha, the mean memory of all silos, in place of h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from fedsilo.methods.components.server_optimizers import apply_step, change, moment, moments
from fedsilo.methods.components.sizes import SHARE, SIZES, size_of, with_sizes
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.feddyn.config import FedDynConfig
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Sums, Updates
from fedsilo.methods.state import State, Tree


@dataclass(frozen=True)
class _Remembering(OneModelServer):
    config: FedDynConfig

    @override
    def start(self, job: ServerContext) -> State:
        """FedDyn's state before round 1: the initial model, and a memory of zeros unless the variant is `map`."""
        state = super().start(job)
        if self.config.variant == "map":
            return state
        return state.with_trees(memory=moments(state.tree("model")))

    def _updated_state(self, job: ServerContext, state: State, mean: Tree, alike: Tree, count: int) -> State:
        """w <- the mean theta_k of the round's silos, and the mean h_k of all.

        The memories of the round's silos grow by theta_k - w; those of the others are what they were.

        :param alike: mean of the models, each alike.
        :param count: silos that answered.
        """
        w, part = state.tree("model"), count / len(job.silos)
        memory = moment(state.tree("memory"), change(w, alike), 1.0, damping=1 - part)
        return state.with_trees(model=apply_step(mean, mean, memory), memory=memory)


class FedDynServer(_Remembering):
    """FedDyn's server half that needs no more than sums over silos.

    Trees: `model` (w), and `memory`, the sum over all silos of h_k / N, unless the variant has none.
    """

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """w and the mean memory, of means in which silos count alike."""
        mean = sums.mean("model")
        if self.config.variant != "map":
            return self._updated_state(job, state, mean, mean, sums.count)
        w, n = state.tree("model"), len(job.silos)
        drawn = job.spec.participation.sample_size(n) / n
        return state.with_trees(model=apply_step(w, mean, change(w, mean), drawn))


class FedDynOfSilosServer(_Remembering):
    """FedDyn's where silos differ: in their weight, or in alpha by their size. Value: `samples` of all silos."""

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w, and v_k where silos count by size; nothing where they state it."""
        if exchange.phase.step == SIZES:
            return dict.fromkeys(silos, Assignment())
        if self.config.variant != "released":
            return super().assign(job, state, exchange, silos)
        return {silo: Assignment({"model": "model"}, {SHARE: size_of(state, silo)}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """The sizes, then w and the mean memory."""
        if exchange.phase.step == SIZES:
            return with_sizes(state, updates)
        alike = updates.mean("model", weights="uniform")
        return self._updated_state(job, state, updates.mean("model"), alike, updates.count)
