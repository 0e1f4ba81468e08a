"""FedProx: federated averaging with a proximal term in the silos' loss.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2: a silo minimises
F_k(w_k) + (mu / 2) ||w_k - w||^2, where w is the model that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.pieces.local import train_model
from fedsilo.methods.pieces.proximal import proximal_loss
from fedsilo.methods.state import State
from fedsilo.tasks.interface import EVERY_TASK


class FedProxConfig(MethodConfig):
    """Settings."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: (mu / 2) ||w_k - w||^2. released: mu times the mean Huber distance of the tensors, which "
        "is far weaker; uniform means [paper, eq. 2; MAP's released code].",
    )
    mu: float = Field(
        default=0.01, ge=0, description="Weight of the term; 0 is FedAvg [paper: 0.001, 0.01, 0.1, 1]."
    )


class FedProx(FedAvg):
    """Declaration of FedProx."""

    name = "fedprox"
    title = "Federated averaging with a proximal term"
    citation = (
        "T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. Federated Optimization in Heterogeneous "
        "Networks. MLSys 2020."
    )
    tasks = EVERY_TASK
    needs_features = False
    Config = FedProxConfig
    config: FedProxConfig

    @property
    def default_averaging(self) -> str:
        """By samples as printed, uniform in MAP's code."""
        return "samples" if self.config.variant == "paper" else "uniform"

    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy and the proximal term."""
        distance: Literal["squared", "huber"] = "squared" if self.config.variant == "paper" else "huber"

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            loss = proximal_loss(silo, task.trees["model"], self.config.mu, distance=distance)
            return train_model(silo, task, private, loss=loss)

        return {"train": train}
