"""FedDecorr is federated averaging whose silos keep the dimensions of their features uncorrelated.

Shi, Liang, Zhang, Tan, Bai, "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
Learning", ICLR 2023: features of silos with few classes collapse into few dimensions; a penalty on their
correlation matrix counters that.

The penalty is `beta` times the mean square of the features' correlation matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import ONE_FEATURE, TaskTraits, TrainingTraits

if TYPE_CHECKING:
    from torch import Tensor

    from fedsilo.learning.models import Model
    from fedsilo.learning.training import Loss

Variant = Literal["paper", "released", "fedbr"]

EPS = 1e-8
"""Added to each variance, as in the released code: a dimension may be constant within a batch."""

FEDBR_EPS = 1e-4
"""Added to each standard deviation in FedBR's released code."""


class FedDecorrConfig(MethodConfig):
    """Settings of FedDecorr, the form of its decorrelation term and the weight."""

    variant: Variant = Field(
        default="paper",
        description="paper: ||K||^2 / d^2 of the correlation matrix K of a batch. released: the mean square off the "
        "diagonal of (n - 1) K over the batch size n, about n times as strong. fedbr: as paper, of K (n - 1) / n "
        "[paper; released code; FedBR's released code].",
    )
    beta: float = Field(default=0.1, ge=0, description="Weight of the term; 0 is FedAvg [released codes].")


class FedDecorr(FedAvg):
    """Declaration of FedDecorr, FedAvg with decorrelated features."""

    name = "feddecorr"
    title = "Federated averaging with decorrelated features"
    citation = (
        "Y. Shi, J. Liang, W. Zhang, V. Y. F. Tan, S. Bai. Towards Understanding and Mitigating Dimensional Collapse "
        "in Heterogeneous Federated Learning. ICLR 2023."
    )
    tasks = TaskTraits(ONE_FEATURE, "it decorrelates the dimensions of the one feature of each example")
    Config = FedDecorrConfig
    config: FedDecorrConfig
    training = TrainingTraits(data_parallel=False)  # correlations are those of whole batches

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the task's loss and beta times the decorrelation."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_model(silo, task, private, loss=decorrelating_loss(silo, self.config))

        return {"train": train}


def decorrelating_loss(silo: SiloContext, config: FedDecorrConfig) -> Loss:
    """L + beta L_decorr of the batch's features; only L of a single example, which has no correlations."""
    learning_task = silo.learning_task
    weights = learning_task.class_weights(silo.train.labels)

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        z = model.features(features)
        own = learning_task.loss(model.classifier(z), labels, weights)
        return own + config.beta * decorrelation(z, config.variant) if len(z) > 1 else own

    return loss


def decorrelation(features: Tensor, variant: Variant) -> Tensor:
    """Mean square of the entries of the correlation matrix K, (d, d), in the form of the variant.

    :param features: (n, d), n at least 2.
    """
    n, d = features.shape
    centred = features.float() - features.float().mean(dim=0)
    deviation = (centred.square().sum(dim=0) / (n - 1) + EPS).sqrt()
    standard = centred / (deviation + FEDBR_EPS if variant == "fedbr" else deviation)
    products = (standard.T @ standard).float()  # (n - 1) K
    if variant == "released":
        off = products - products.diag().diag()
        return off.square().sum() / max(d * (d - 1), 1) / n
    return (products / (n - 1 if variant == "paper" else n)).square().mean()
