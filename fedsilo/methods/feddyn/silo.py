"""FedDyn in the silo: training on the regularised loss, and the memory of what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedsilo.learning.models import to_tree
from fedsilo.learning.state_names import named_parameters
from fedsilo.learning.training import Correction, fit
from fedsilo.methods.components.server_optimizers import change, moments
from fedsilo.methods.components.sizes import share_of
from fedsilo.methods.feddyn.config import FedDynConfig
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: FedDynConfig) -> Reply:
    """theta_k from w on f(theta) + alpha_k (<theta, h_k - w> + ||theta||^2 / 2); h_k <- h_k + theta_k - w.

    `gradientClip` is of the gradient of all of it, but for the released code, in which the pull to zero is the
    optimiser's weight decay and so not clipped.

    :param task: with the setting `share` in the released code: v_k, the silo's size over the mean size.
    :param private: tree `memory` (h_k); zero where it is not there.
    :raises MethodError: a task of the released code has no share that can be.
    """
    w = task.trees["model"]
    memory = private.tree("memory") if "memory" in private.trees else moments(w)
    model, device = silo.module(w), silo.train.labels.device
    alpha, pull = config.alpha, 1.0
    if config.variant == "released":
        alpha /= share_of(task)
    elif config.variant == "map":
        alpha, pull = alpha / len(list(model.parameters())), 2.0
    towards = {name: torch.tensor(h - w[name], device=device) for name, h in memory.items()}

    def adding(term: Callable[[str, Tensor], Tensor]) -> Correction:
        def correct(model: nn.Module) -> None:
            for name, theta in named_parameters(model):
                if theta.grad is not None:
                    theta.grad.add_(term(name, theta.detach()), alpha=alpha)

        return correct

    if config.variant == "released":
        correct, after_clip = adding(lambda name, theta: towards[name]), adding(lambda name, theta: theta)
    else:
        correct, after_clip = adding(lambda name, theta: towards[name] + pull * theta), None
    report = fit(
        model, silo.train, silo.local_training(task), loss=silo.loss(), correct=correct, after_clip=after_clip
    )
    tree = to_tree(model)
    moved = change(w, tree)
    grown = {name: h + moved[name] for name, h in memory.items()}
    reply = Reply(tree, samples=len(silo.train), metrics={"loss": report.loss})
    return replace(reply, private=State({"memory": grown}))
