"""The silo half of FedBR: settings, pseudo-data, and local training with the projection beside the model.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Section 4 and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloTask
from fedsilo.methods.pieces.local import train_model
from fedsilo.methods.state import State

if TYPE_CHECKING:
    from fedsilo.learning.bias_reduction import PseudoData

THETA = "projection."
LAYERS: Mapping[str, tuple[str, ...]] = {
    "0.weight": ("projected", "feature"),
    "0.bias": ("projected",),
    "2.weight": ("projected", "projected"),
    "2.bias": ("projected",),
    "4.weight": ("feature", "projected"),
    "4.bias": ("feature",),
}
"""Shapes of the projection P_theta."""


class FedBRConfig(MethodConfig):
    """Settings; defaults are those of the released code where the paper prints symbols only."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: global features are those of the step's pseudo-data. released: those of the first step's, "
        "which differs for mixtures only [paper, Algorithm 1; released code].",
    )
    pseudo_data: Literal["means", "mixture"] = Field(
        default="means",
        description="means: RSM, of the silo's own examples. mixture: its examples mixed into proxies that all "
        "silos share, means of inputs of uniform noise [paper, Section 4.1; the silo's own and noise, unlike the "
        "released code].",
    )
    averaged: int = Field(default=10, ge=1, le=10_000, description="Inputs in a mean [released code].")
    mixed: int = Field(default=1, ge=1, le=1000, description="Local examples K in a mixture [released code].")
    pseudo_weight: float = Field(
        default=1.0, ge=0, description="lambda; 0 leaves component 1 out [released code; paper, Table 4]."
    )
    contrast_weight: float = Field(
        default=0.5, ge=0, description="mu; 0 leaves component 2 out [released code; paper, Table 4]."
    )
    temperature: float = Field(
        default=0.5, gt=0, description="tau_1 and tau_2 [released code, which multiplies by 2]."
    )
    max_step: bool = Field(
        default=True, description="Step the projection up before each local step [paper, Table 4]."
    )


def train(silo: SiloContext, task: SiloTask, config: FedBRConfig) -> Reply:
    """Local training with FedBR's loss; the reply carries phi, omega and, where there is a contrast, theta."""
    from fedsilo.learning.bias_reduction import BiasReducedLoss, Terms, projection
    from fedsilo.learning.models import load_tree, to_tree

    theta = projection(silo.signature.feature).to(silo.train.labels.device)
    if config.contrast_weight:
        tree = task.trees["projection"]
        load_tree(theta, {name.removeprefix(THETA): array for name, array in tree.items()})
    terms = Terms(
        pseudo=config.pseudo_weight,
        contrast=config.contrast_weight,
        temperature=config.temperature,
        max_step=config.max_step,
        global_once=config.variant == "released",
    )
    plan = silo.local_training(task)
    loss = BiasReducedLoss(
        terms, silo.model(task.trees["model"]), theta, pseudo_data(silo, task, config), plan.lr
    )
    reply = train_model(silo, task, State(), loss=loss, plan=plan)
    if not config.contrast_weight:
        return reply
    stepped = {THETA + name: array for name, array in to_tree(theta).items()}
    return replace(reply, tensors={**reply.tensors, **stepped})


def pseudo_data(silo: SiloContext, task: SiloTask, config: FedBRConfig) -> PseudoData:
    """D_p, as many as a batch holds: the same means in every round, or new mixtures in every step."""
    import torch

    from fedsilo.learning.bias_reduction import local_means, local_mixtures

    classes, size = silo.signature.classes, silo.spec.training.batch_size
    if config.pseudo_data == "means":
        return local_means(silo.train, classes, size, config.averaged, silo.seed("pseudo-data"))
    proxies = torch.tensor(task.trees["proxies"]["proxies"], device=silo.train.labels.device)
    return local_mixtures(silo.train, classes, proxies, config.mixed, silo.seed("mixture", task.round))
