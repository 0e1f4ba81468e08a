"""Control variates correct each silo's gradients by how far they differ from those of all silos.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II. Silos send their model and how many steps they took. The change of a silo's variate follows from that,
c_k+ - c_k = (w - y_k) / (tau_k eta) - c, so it need not travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.methods.components.buffers import zero_like
from fedsilo.methods.components.local_steps import STEPS
from fedsilo.methods.components.sizes import share_of
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State, Tree

if TYPE_CHECKING:
    from fedsilo.learning.training import Correction, LocalTraining, Loss


@dataclass(frozen=True)
class ControlVariateRule:
    """Where the codes in circulation differ from each other; the paper is the default.

    :param momentum: the job's momentum acts in local steps, which makes variates too large by up to 1 / (1 - rho).
    :param weight_decay: so does the job's weight decay.
    :param after_step: the correction is a step of its own after each step, past momentum and clipping.
    :param clip_first: the gradient is clipped before the correction is added, and not their sum.
    :param base_rate: variates are divided by the job's rate, and not by that of the round's schedule.
    :param over_sampled: the mean change of variates is over the silos of the round, and not over all of them.
    :param by_size: a silo corrects with c / v_k, and its change counts v_k times, v_k = N n_k / n.
    """

    momentum: bool = False
    weight_decay: bool = True
    after_step: bool = False
    clip_first: bool = False
    base_rate: bool = False
    over_sampled: bool = False
    by_size: bool = False


MAP_CODE = ControlVariateRule(weight_decay=False, clip_first=True, base_rate=True, over_sampled=True)
"""The rule of MAP's released code."""


def train_controlled(
    silo: SiloContext,
    task: SiloTask,
    private: State,
    rule: ControlVariateRule,
    *,
    loss: Loss | None = None,
    plan: LocalTraining | None = None,
) -> Reply:
    """y <- y - eta (g(y) - c_k + c), from w; the reply carries y and the number of steps, and keeps c_k+.

    :param task: trees `model` (w) and `control` (c); setting `share` (v_k) where the rule asks for it.
    :param private: tree `control` (c_k); zero where it is not there.
    :param loss: of a batch; the learning task's by default.
    :param plan: the job's local training by default.
    :raises MethodError: the rule asks for a share, and the task has none that can be.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import fit

    w, c = task.trees["model"], task.trees["control"]
    own = private.tree("control") if "control" in private.trees else zero_like(w)
    share = share_of(task) if rule.by_size else 1.0
    shift = {name: c[name] / share - own[name] for name in c}
    plan = plan or silo.local_training(task)
    rate = silo.spec.training.optimizer.learning_rate if rule.base_rate else plan.lr
    momentum = plan.momentum if rule.momentum else 0.0
    plan = replace(plan, momentum=momentum, weight_decay=plan.weight_decay if rule.weight_decay else 0.0)
    model = silo.module(w)
    correct, step = _corrections(silo, shift, plan.lr)
    report = fit(
        model,
        silo.train,
        plan,
        loss=loss or silo.loss(),
        correct=None if rule.after_step or rule.clip_first else correct,
        after_clip=correct if rule.clip_first else None,
        after_step=step if rule.after_step else None,
    )
    y = to_tree(model)
    metrics = {"loss": report.loss, STEPS: float(report.steps)}
    return Reply(
        y, len(silo.train), metrics, private=State({"control": control(w, y, c, own, report.steps * rate)})
    )


def control(
    w: Mapping[str, np.ndarray],
    y: Mapping[str, np.ndarray],
    c: Mapping[str, np.ndarray],
    own: Mapping[str, np.ndarray],
    distance: float,
) -> Tree:
    """c_k+ = c_k - c + (w - y) / (tau_k eta), option II.

    :param distance: tau_k eta, how far tau_k steps along a gradient of norm one would lead.
    """
    return {name: own[name] - c[name] + (w[name] - y[name]) / distance for name in c}


def _corrections(silo: SiloContext, shift: Tree, rate: float) -> tuple[Correction, Correction]:
    """c - c_k added to the gradients, and as a step of its own."""
    import torch
    from torch import nn

    from fedsilo.learning.state_names import named_parameters

    added = {name: torch.tensor(array, device=silo.train.labels.device) for name, array in shift.items()}

    def correct(model: nn.Module) -> None:
        for name, parameter in named_parameters(model):
            if parameter.grad is not None:
                parameter.grad += added[name]

    def step(model: nn.Module) -> None:
        with torch.no_grad():
            for name, parameter in named_parameters(model):
                parameter.sub_(added[name], alpha=rate)

    return correct, step
