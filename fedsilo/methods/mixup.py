"""Mixup is federated averaging whose silos train on mixtures of their own examples.

Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018. Examples are mixed inside a
silo, batch by batch, and nothing but the model leaves it.

A batch is mixed with itself in another order, by a part from Beta(`alpha`, `alpha`).
"""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.mixing import MixupConfig, mixup_loss
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import TaskTraits, TrainingTraits


class Mixup(FedAvg):
    """Declaration of Mixup, which differs from FedAvg in the silos' loss."""

    name = "mixup"
    title = "Federated averaging with mixed examples"
    citation = "H. Zhang, M. Cisse, Y. N. Dauphin, D. Lopez-Paz. mixup: Beyond Empirical Risk Minimization. ICLR 2018."
    tasks = TaskTraits(needs_features=False)
    Config = MixupConfig
    config: MixupConfig
    training = TrainingTraits(data_parallel=False)  # examples are mixed with others of their batch

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on mixtures."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_model(silo, task, private, loss=mixup_loss(silo, task, self.config.alpha))

        return {"train": train}
