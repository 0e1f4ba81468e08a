"""Silo half of pFedMe: steps on the Moreau envelope, whose minimiser is the silo's own model."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedsilo.learning.models import to_tree
from fedsilo.learning.state_names import named_parameters
from fedsilo.learning.training import LocalTraining, Loss, fit
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloContext, SiloTask
from fedsilo.methods.pfedme.config import PFedMeConfig
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: PFedMeConfig) -> Reply:
    """Training on each batch of theta by K steps, then w_k <- w_k - eta lambda (w_k - theta).

    BatchNorm's statistics are those of theta, which alone sees the examples.
    """
    plan, given = silo.local_training(task), task.trees["model"]
    model, theta = silo.module(given), silo.module(given).train()
    outer = replace(plan, momentum=0.0, weight_decay=0.0)
    if config.variant == "map":
        outer = replace(outer, lr=config.alpha)
    report = fit(model, silo.train, outer, loss=envelope(silo, theta, config, plan))
    own, learned = to_tree(theta), dict(named_parameters(model))
    sent = {name: w if name in learned else own[name] for name, w in to_tree(model).items()}
    return Reply(sent, len(silo.train), {"loss": report.loss}, private=State({PERSONAL_TREE: own}))


def envelope(silo: SiloContext, theta: nn.Module, config: PFedMeConfig, plan: LocalTraining) -> Loss:
    """F_k(w) on a batch, with the gradient of eq. 4; in variant map that of half the squared distance.

    :param theta: where the last batch left it; changed in place.
    :param plan: of the job, for theta's weight decay, and in variant map its rate.
    """
    own, pull = silo.loss(), config.proximal_weight
    paper = config.variant == "paper"
    rate = config.personal_rate if paper else plan.lr

    def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        anchors, personal = list(model.parameters()), list(theta.parameters())
        for _ in range(config.personal_steps):
            value = own(theta, features, labels)
            gradients = torch.autograd.grad(value, personal, materialize_grads=True)
            with torch.no_grad():
                for p, w, gradient in zip(personal, anchors, gradients, strict=True):
                    p.sub_(rate * (pull * (p - w) + gradient + plan.weight_decay * p))  # which may be sparse
        squares = [(w - p.detach()).square().sum() for p, w in zip(personal, anchors, strict=True)]
        return value.detach() + (pull if paper else 1) / 2 * torch.stack(squares).sum()

    return loss
