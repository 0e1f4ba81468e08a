"""clsnorm is federated averaging with a classifier whose class weights have norm one.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Section 3: silos train on logits phi_c^T z / ||phi_c||, so that no class wins by the size of its weights.

The job's final model has class weights of norm one too. tau-norm with `tau: 1` makes the same of a trained model,
without the bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from fedsilo.methods.components.class_weights import MIN_NORM, normalised_rows
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvgServer, OneModel
from fedsilo.methods.interface import (
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
    Snapshot,
)
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State

if TYPE_CHECKING:
    from torch import Tensor

    from fedsilo.learning.models import Model


class ClsNormServer(FedAvgServer):
    """FedAvg's server half that yields the model with class weights of norm one, as silos train it."""

    @override
    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The averaged model with its class weights normalised."""
        tree = state.tree("model")
        return Snapshot({**tree, "classifier.weight": normalised_rows(tree["classifier.weight"])})


class ClsNorm(OneModel):
    """Declaration of clsnorm, FedAvg with normalised class weights."""

    name = "clsnorm"
    title = "Federated averaging with normalised class weights"
    citation = (
        "M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. No Fear of Heterogeneity: Classifier Calibration for "
        "Federated Learning with Non-IID Data. NeurIPS 2021."
    )
    models = JobModels(SharedModel(whole="the aggregator normalises the classifier"))

    @override
    def server(self) -> ServerHalf[Sums]:
        return ClsNormServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy of the normalised logits."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_model(silo, task, private, loss=normalised_loss)

        return {"train": train}


def normalised_loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of phi_c^T z / ||phi_c||, plus the classifier's bias where it has one."""
    from torch.nn import functional

    weight = functional.normalize(model.classifier.weight, dim=1, eps=MIN_NORM)
    logits = functional.linear(model.features(features), weight, model.classifier.bias)
    return functional.cross_entropy(logits, labels)
