"""Per-FedAvg at the aggregator: averaging, while there are models."""

from __future__ import annotations

from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.interface import Exchange, ServerContext
from fedsilo.methods.per_fedavg.config import PERSONALISE
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State


class PerFedAvgServer(OneModelServer):
    """Averaging in which the last exchange changes nothing. Tree: `model`."""

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The mean of the models, while there are any."""
        return state if exchange.phase.step == PERSONALISE else state.with_trees(model=sums.mean("model"))
