"""FedBR: local learning bias reduction with pseudo-data and a min-max contrast.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Algorithm 1. The released code averages raw images centrally and shares the means; no average of raw inputs leaves
a silo here. Each silo makes its pseudo-data of its own examples, or mixes them into means of noise that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Payload,
    Reply,
    ServerContext,
    SiloContext,
    SiloStep,
    SiloTask,
    Step,
    Updates,
)
from fedsilo.methods.pieces.bias_reduction import LAYERS, THETA, FedBRConfig, train
from fedsilo.methods.pieces.classifiers import new_projection
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.wire import ModelSignature


@dataclass(frozen=True)
class FedBRServer(FedAvgServer):
    """Trees: `model` (phi, omega), `projection` (theta) and for mixtures `proxies`."""

    config: FedBRConfig

    def start(self, job: ServerContext) -> State:
        """One initial model and projection for all; means of uniform noise where the silos mix."""
        state = super().start(job)
        if self.config.contrast_weight:
            state = state.with_trees(projection=self._projection(job))
        if self.config.pseudo_data == "mixture":
            state = state.with_trees(proxies={"proxies": self._proxies(job)})
        return state

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast all trees; a silo fetches the proxies once."""
        return {silo: Assignment({name: name for name in state.trees}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Average phi, omega and theta."""
        mean = job.mean(updates, "model")
        state = state.with_trees(model={name: mean[name] for name in state.tree("model")})
        if self.config.contrast_weight:
            state = state.with_trees(projection={name: mean[name] for name in state.tree("projection")})
        return state

    @staticmethod
    def _projection(job: ServerContext) -> Tree:
        layers = new_projection(job.signature.feature, job.seed("projection"))
        return {THETA + name: array for name, array in layers.items()}

    def _proxies(self, job: ServerContext) -> np.ndarray:
        """(B, *input shape): means of inputs ~ U[0, 1]."""
        rng, shape = np.random.default_rng(job.seed("proxies")), job.spec.data.input_shape
        size = job.spec.training.batch_size
        total = np.zeros((size, *shape), np.float32)
        for _ in range(self.config.averaged):
            total += rng.random((size, *shape), dtype=np.float32)
        return total / np.float32(self.config.averaged)


class FedBR(FedAvg):
    """Declaration of FedBR."""

    name = "fedbr"
    title = "Federated learning with local learning bias reduction"
    citation = (
        "Y. Guo, X. Tang, T. Lin. FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias "
        "Reduction. ICML 2023."
    )
    at_aggregator = "the model, the projection, and for mixtures the proxies: means of uniform noise"
    in_silo = "nothing; its pseudo-data follow from its examples and its seed"
    Config = FedBRConfig
    default_averaging = "uniform"
    config: FedBRConfig

    def steps(self) -> Mapping[str, Step]:
        """The model, and the projection where there is a contrast."""
        theta = tuple(Payload("model", THETA + name, shape) for name, shape in LAYERS.items())
        return {"train": Step((Payload("model"), *(theta if self.config.contrast_weight else ())), ("loss",))}

    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """`projected` = 2 d, width of the projection's hidden layers."""
        return {**super().dimensions(signature, settings), "projected": 2 * signature.feature}

    def server(self) -> FedBRServer:
        """Model and projection."""
        return FedBRServer(self.config)

    def silo(self) -> Mapping[str, SiloStep]:
        """Steps of theta up and of phi and omega down."""

        def step(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train(silo, task, self.config)

        return {"train": step}
