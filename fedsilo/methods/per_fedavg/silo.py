"""Silo half of Per-FedAvg: pairs of steps, and the one step that leads to the silo's own model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fedsilo.learning.models import to_tree
from fedsilo.learning.training import LocalTraining, fit, planned_steps
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloContext, SiloTask
from fedsilo.methods.per_fedavg.config import PerFedAvgConfig
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: PerFedAvgConfig) -> Reply:
    """w_k by pairs of steps from w, and the silo's own model by one step from w."""
    plan = inner_training(silo, task, config)
    model = silo.module(task.trees["model"])
    steps = planned_steps(model, silo.train, plan)
    steps = 2 * steps if config.variant == "map" else steps + steps % 2
    pairs = Pairs((config.meta_rate or silo.local_training(task).lr) / plan.lr)
    plan = replace(plan, min_steps=steps, max_steps=steps)
    before, after, loss = pairs.before_step, pairs.after_step, silo.loss()
    report = fit(model, silo.train, plan, loss=loss, correct=before, after_step=after)
    state, _ = one_step(silo, task, config)
    return Reply(to_tree(model), len(silo.train), {"loss": report.loss}, private=state)


def personalise(silo: SiloContext, task: SiloTask, private: State, *, config: PerFedAvgConfig) -> Reply:
    """The silo's own model by one step from the job's last model; its rate is that of the last round of training."""
    rounds = silo.spec.training.rounds
    state, loss = one_step(silo, replace(task, phase_round=rounds, phase_rounds=rounds), config)
    return Reply(samples=len(silo.train), metrics={"loss": loss}, private=state)


def inner_training(silo: SiloContext, task: SiloTask, config: PerFedAvgConfig) -> LocalTraining:
    """The job's local training at the rate alpha."""
    plan = silo.local_training(task)
    if config.variant == "map":
        return replace(plan, lr=config.inner_rate or plan.lr)
    constant = config.inner_rate or silo.spec.training.optimizer.learning_rate
    return replace(plan, lr=constant, momentum=0.0)


def one_step(silo: SiloContext, task: SiloTask, config: PerFedAvgConfig) -> tuple[State, float]:
    """theta = w - alpha grad l(w) on a batch, eq. 7, as private state, and l(w)."""
    own = silo.module(task.trees["model"])
    plan = replace(inner_training(silo, task, config), kept=None, min_steps=1, max_steps=1)
    report = fit(own, silo.train, plan, loss=silo.loss())
    return State({PERSONAL_TREE: to_tree(own)}), report.loss


@dataclass
class Pairs:
    """Pairs of local steps, the first to theta, the second from where the first began by the gradient at theta.

    :param ratio: beta / alpha, rate of the second step over that of the first, which is the optimiser's.
    """

    ratio: float
    _start: list[Tensor] = field(default_factory=list)
    _second: bool = True

    def before_step(self, model: nn.Module) -> None:
        """Keep w before the first step; put it back before the second, whose gradient stays."""
        self._second = not self._second
        if not self._second:
            self._start = [w.detach().clone() for w in model.parameters()]
            return
        with torch.no_grad():
            for w, start in zip(model.parameters(), self._start, strict=True):
                w.copy_(start)

    def after_step(self, model: nn.Module) -> None:
        """Lengthen or shorten the second step."""
        if self._second and self.ratio != 1:
            with torch.no_grad():
                for w, start in zip(model.parameters(), self._start, strict=True):
                    w.copy_(start + self.ratio * (w - start))
