"""FedCM in the silo: w_k <- w_k - eta (alpha g + (1 - alpha) Delta), from w."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from fedsilo.learning.models import to_tree
from fedsilo.learning.state_names import named_parameters
from fedsilo.learning.training import fit
from fedsilo.methods.components.local_steps import STEPS
from fedsilo.methods.fedcm.config import FedCMConfig
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: FedCMConfig) -> Reply:
    """Local training with Delta in every gradient, where it is clipped with it; the reply carries w_k and tau_k."""
    direction, plan, alpha = task.trees["direction"], silo.local_training(task), config.alpha
    if config.variant == "paper":
        plan = replace(plan, momentum=0.0)
    elif any(array.any() for array in direction.values()):
        # alpha scales the released step's momentum and weight decay too: its velocity is the mixture with Delta.
        plan = replace(plan, momentum=alpha * plan.momentum, weight_decay=alpha * plan.weight_decay)
    else:
        alpha = 1.0
    device = silo.train.labels.device
    delta = {name: torch.tensor(array, device=device) for name, array in direction.items()}

    def correct(model: nn.Module) -> None:
        for name, parameter in named_parameters(model):
            if parameter.grad is not None:
                parameter.grad.mul_(alpha).add_(delta[name], alpha=1 - alpha)

    model = silo.module(task.trees["model"])
    report = fit(model, silo.train, plan, loss=silo.loss(), correct=correct)
    metrics = {"loss": report.loss, STEPS: float(report.steps)}
    return Reply(to_tree(model), samples=len(silo.train), metrics=metrics)
