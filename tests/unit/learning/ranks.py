"""What two processes of a silo train together, and one process by itself; the tests compare them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec
from fedsilo.api.training import AugmentationSpec
from fedsilo.learning.data_parallel import ProcessGroup, join, leave
from fedsilo.learning.examples import Examples
from fedsilo.learning.losses import task_divisor, task_loss
from fedsilo.learning.models import Model, to_tree
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.training import LocalTraining, TrainingReport, fit
from fedsilo.methods.dann.config import DANNConfig
from fedsilo.methods.dann.discriminator import discriminator
from fedsilo.methods.dann.silo import AdversarialLoss
from fedsilo.tasks.registry import bind

Result = tuple[Mapping[str, np.ndarray], TrainingReport, OptimizerState]

WEIGHTED_TASK = bind(
    LearningTaskSpec.model_validate({"name": "classification", "config": {"classWeights": "balanced"}}),
    DataSpec.model_validate({"dataset": "d", "inputShape": [1, 4, 4], "classes": 3}),
)
IMAGES = torch.rand(25, 1, 4, 4, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(25) % 7 % 3
CLIP = 0.5

PLAN = LocalTraining(lr=0.1, epochs=2, batch_size=8, momentum=0.9, seed=5)
CASES: dict[str, LocalTraining] = {
    # 25 examples in batches of 8: the last batch is one example, of which the second process has none.
    "uneven": PLAN,
    "accumulation": replace(PLAN, batch_size=12, accumulation=3, gradient_clip=CLIP),
    "adam": replace(PLAN, optimizer="adam", lr=0.01, batch_size=7),
    "augmentation": replace(
        PLAN, augmentation=AugmentationSpec(crop=1, border="reflect", flip=True, rotation=5)
    ),
    "per batch": replace(PLAN, augmentation=AugmentationSpec(crop=1, flip=True, per="batch"), batch_size=6),
    "float16": replace(PLAN, precision="float16", epochs=12),
}


def model(dtype: torch.dtype) -> Model:
    torch.manual_seed(0)
    return Model(nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh()), nn.Linear(6, 3)).to(dtype)


def train(name: str, group: ProcessGroup) -> Result:
    """Weights, report and the optimiser's state of one case."""
    plan, kept = CASES[name], OptimizerState()
    dtype = torch.float32 if plan.precision == "float16" else torch.float64
    network = model(dtype)
    if group.rank:
        with torch.no_grad():
            next(network.parameters()).add_(1)  # every process begins with the weights of rank 0
    loss, divisor = task_loss(WEIGHTED_TASK, LABELS), task_divisor(WEIGHTED_TASK, LABELS)

    def float_loss(module: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss(lambda x: module(x).float(), features, labels)  # as the weights are

    plan = replace(plan, group=group, divisor=divisor, kept=kept)
    examples = Examples(IMAGES.to(dtype), LABELS)
    report = fit(network, examples, plan, loss=float_loss)
    return to_tree(network), report, kept


def normalised_tree(group: ProcessGroup) -> Mapping[str, np.ndarray]:
    """The weights and running statistics of a network with BatchNorm."""
    torch.manual_seed(0)
    network = Model(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16)), nn.Linear(16, 3))
    fit(network, Examples(IMAGES, LABELS), replace(PLAN, batch_size=10, group=group))
    return to_tree(network)


def adversarial(group: ProcessGroup, variant: str) -> Mapping[str, np.ndarray]:
    """The weights of a network and of the discriminator that is trained beside it, by dann's loss."""
    network = model(torch.float64)
    adversary = discriminator(6, 5, 2).double()
    loss = AdversarialLoss(DANNConfig.model_validate({"variant": variant, "reversal": 0.5}), adversary, 1)
    both = [*network.parameters(), *adversary.parameters()]
    examples, plan = Examples(IMAGES.double(), LABELS), replace(PLAN, group=group)
    fit(network, examples, plan, loss=loss, after_step=loss.count, parameters=both)
    return {
        **to_tree(network),
        **{f"discriminator.{name}": array for name, array in to_tree(adversary).items()},
    }


Trees = dict[str, Mapping[str, np.ndarray]]


def train_all(
    rank: int, port: int, world_size: int
) -> tuple[dict[str, Result], Mapping[str, np.ndarray], Trees]:
    """All cases as one of several processes."""
    torch.set_num_threads(1)
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    os.environ |= dict(zip(names, map(str, (rank, world_size, "127.0.0.1", port)), strict=True))
    join(torch.device("cpu"), 60)
    try:
        group = ProcessGroup(rank, world_size)
        cases = {name: train(name, group) for name in CASES}
        adversaries = {variant: adversarial(group, variant) for variant in ("paper", "released")}
        return cases, normalised_tree(group), adversaries
    finally:
        leave()
        for name in names:
            del os.environ[name]
