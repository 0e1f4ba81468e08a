"""FedDF is federated averaging whose average then learns from the ensemble of the silos' models.

Lin, Kong, Stich, Jaggi, "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020, Algorithm
1 with equation 2: x <- x - eta dKL(softmax(mean of f(x_k)) || softmax(f(x))) / dx on unlabelled public examples.

The student is in evaluation mode and keeps the averaged BatchNorm statistics; one teacher at a time is in memory
beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.fedavg import OneModel, OneModelServer
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf
from fedsilo.methods.method import PublicData
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State
from fedsilo.methods.traits import TaskTraits

if TYPE_CHECKING:
    from fedsilo.learning.distilling import Distillation


class FedDFConfig(MethodConfig):
    """Settings of FedDF in a job's `spec.method.config`; defaults are the paper's."""

    ensemble: Literal["logits", "probabilities"] = Field(
        default="logits",
        description="What is averaged over the silos' models: logits, or their softmax, whose gradient is also that of "
        "the mean of the divergences from each model [paper, eq. 2; released code].",
    )
    learning_rate: float = Field(
        default=1e-3, gt=0, description="Adam's, which falls along a cosine to 0 [paper, Section 4.1]."
    )
    steps: int = Field(default=10_000, ge=1, description="Steps in a round, at most [paper, Section 4.1].")
    patience: int = Field(
        default=1000,
        ge=1,
        description="Steps without a gain, after which a round's distillation ends. The gain is measured on a tenth of "
        "the public examples, by the divergence from the ensemble; the released code has labelled examples for it "
        "[paper, Section 4.1; fedsilo].",
    )
    batch_size: int = Field(
        default=128, ge=1, description="Public examples in a step [paper, Section 4.1; released code]."
    )


GRADIENT_CLIP = 5.0
"""Largest norm of the gradient, in the released code."""


@dataclass(frozen=True)
class FedDFServer(OneModelServer):
    """Server half that keeps the tree `model`, which is the student of the last round."""

    config: FedDFConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """x_{t,0} <- mean of x_k; then N steps towards the ensemble of the x_k."""
        from fedsilo.methods.components.ensembles import distill_ensemble, identity, softmax

        teachers = (updates.tensors(silo, "model") for silo in updates.silos)
        plan = partial(self.plan, job.seed("distillation", exchange.round))
        answer, target = (
            (softmax, identity) if self.config.ensemble == "probabilities" else (identity, softmax)
        )
        student = distill_ensemble(job, updates.mean("model"), teachers, answer, target, plan)
        return state.with_trees(model=student)

    def plan(self, seed: int, examples: int) -> Distillation:
        """Adam, a falling rate, and an end where nothing is gained any more."""
        from fedsilo.learning.distilling import Distillation

        config = self.config
        return Distillation(
            lr=config.learning_rate,
            steps=config.steps,
            batch_size=config.batch_size,
            seed=seed,
            cosine=True,
            gradient_clip=GRADIENT_CLIP,
            patience=config.patience,
        )


class FedDF(OneModel):
    """Declaration of FedDF, which reads a job's public examples without their labels."""

    name = "feddf"
    title = "Federated averaging with ensemble distillation"
    citation = (
        "T. Lin, L. Kong, S. U. Stich, M. Jaggi. Ensemble Distillation for Robust Model Fusion in Federated Learning. "
        "NeurIPS 2020."
    )
    Config = FedDFConfig
    config: FedDFConfig
    tasks = TaskTraits(needs_features=False)
    models = JobModels(SharedModel(whole="the silos' models answer at the aggregator"))
    public_data: PublicData | None = "examples"

    @override
    def server(self) -> ServerHalf[Updates]:
        """The average, and its distillation."""
        return FedDFServer(self.config)
