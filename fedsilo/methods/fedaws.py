"""FedAwS is federated averaging whose server spreads the class weights apart.

Yu, Rawat, Menon, Kumar, "Federated Learning with Only Positive Labels", ICML 2020: after each average the server
minimises the penalty of classes whose weights lie too near to each other. Made for silos of one class each.

The penalty is the mean of (1 - cos) / 2 over all pairs, as in MAP's code, with momentum 0.9. The paper's is a sum
in a single step, which is another rate at `steps: 1`, for silos of one class; here they train as in fedavg.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.fedavg import OneModel, OneModelServer
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.traits import TaskTraits

WEIGHT = "classifier.weight"
MOMENTUM = 0.9
SHORTEST_NORM = 1e-12
"""Norm up to which class weights have no direction."""


class FedAwSConfig(MethodConfig):
    """Settings of FedAwS, the margin between classes and the server's steps that spread them."""

    margin: float = Field(
        default=0.8, gt=0, le=1, description="Distance nu up to which classes repel [MAP: 0.5, 0.8, 0.9]."
    )
    steps: int = Field(
        default=30, ge=1, le=10000, description="Steps of the server in a round [MAP: 20, 30, 50]."
    )
    spread_learning_rate: float = Field(
        default=0.1, gt=0, le=1000, description="Rate of those steps [MAP: 1, 0.1, 0.01]."
    )


def spreadout(weight: np.ndarray, margin: float) -> tuple[float, np.ndarray]:
    """Mean over all pairs of classes of max(0, nu - d)^2 with d = (1 - cos) / 2, and its gradient.

    A class's pair with itself adds a constant. A class without weights is at distance 1/2 of all others, and stays.

    :param weight: (C, d).
    """
    lengths = np.linalg.norm(weight, axis=1, keepdims=True)
    unit = np.divide(weight, lengths, out=np.zeros_like(weight), where=lengths > SHORTEST_NORM)
    near = np.maximum(margin - (1 - unit @ unit.T) / 2, 0)
    np.fill_diagonal(near, margin)
    by_unit = 2 * near @ unit / near.size
    by_unit -= np.sum(by_unit * unit, axis=1, keepdims=True) * unit
    gradient = np.divide(by_unit, lengths, out=np.zeros_like(weight), where=lengths > SHORTEST_NORM)
    return float(np.mean(np.square(near))), gradient


@dataclass(frozen=True)
class FedAwSServer(OneModelServer):
    """FedAvg's, then SGD on the spread of the class weights, with a momentum that starts anew. Tree: `model`."""

    config: FedAwSConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The mean model with its class weights spread."""
        model = sums.mean("model")
        weight = np.asarray(model[WEIGHT])
        velocity = np.zeros_like(weight)
        for _ in range(self.config.steps):
            velocity = MOMENTUM * velocity + spreadout(weight, self.config.margin)[1]
            weight = weight - self.config.spread_learning_rate * velocity
        return state.with_trees(model={**model, WEIGHT: weight})


class FedAwS(OneModel):
    """Declaration of FedAwS, averaging that spreads class weights apart."""

    name = "fedaws"
    title = "Averaging with spread class weights"
    citation = "F. X. Yu, A. S. Rawat, A. K. Menon, S. Kumar. Federated Learning with Only Positive Labels. ICML 2020."
    models = JobModels(SharedModel(whole="the aggregator spreads the class weights"))
    tasks = TaskTraits(reason="it spreads the weights of classes", learned=True)
    Config = FedAwSConfig
    config: FedAwSConfig

    @override
    def server(self) -> ServerHalf[Sums]:
        return FedAwSServer(self.config)
