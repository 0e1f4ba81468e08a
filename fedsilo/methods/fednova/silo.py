"""FedNova in the silo: plain local training, and how much of the way each of its gradients accounts for."""

from __future__ import annotations

from fedsilo.learning.models import to_tree
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.methods.components.local_steps import STEPS
from fedsilo.methods.components.proximal import proximal_loss
from fedsilo.methods.fednova.config import NORMALIZER, FedNovaConfig
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: FedNovaConfig) -> Reply:
    """Local training of w_k from w; the reply carries w_k, tau_k and a_k."""
    w, plan = task.trees["model"], silo.local_training(task)
    model = silo.module(w)
    loss = proximal_loss(silo, w, config.mu) if config.mu else silo.loss()
    report = fit(model, silo.train, plan, loss=loss)
    count = released_normalizer if config.variant == "released" else normalizer
    a = count(report.steps, plan, plan.lr * config.mu)
    return Reply(
        to_tree(model),
        samples=len(silo.train),
        metrics={"loss": report.loss, STEPS: float(report.steps), NORMALIZER: a},
    )


def normalizer(steps: int, plan: LocalTraining, pull: float) -> float:
    """The norm ||a_k||_1 of what each of a silo's gradients counts for in its change of the model.

    w - w_k = eta times the sum over t of a_k[t] g_t, Section 3 of the paper.

    What a gradient counts for depends only on how many steps follow it: tau without momentum, the sum of
    (1 - rho^t) / (1 - rho) with momentum rho, and of (1 - eta mu)^(t - 1) with a proximal term, for t from 1 to tau.

    :param pull: eta mu. The proximal gradient passes through the momentum, as in FedProx.
    """
    gone, velocity, total, gradient = 0.0, 0.0, 0.0, 1.0
    for _ in range(steps):
        velocity = plan.momentum * velocity + gradient
        gone += gradient + plan.momentum * velocity if plan.nesterov else velocity
        total += abs(gone)
        gradient = -pull * gone
    return total


def released_normalizer(steps: int, plan: LocalTraining, pull: float) -> float:
    """The released code's a_k, in which a gradient counts twice where there is momentum and a proximal term."""
    if not (plan.momentum and pull):
        return normalizer(steps, plan, pull)
    count, total = 0.0, 0.0
    for _ in range(steps):
        count = plan.momentum * count + 1
        total = (total + count) * (1 - pull) + 1
    return total
