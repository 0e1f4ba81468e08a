"""Local training as most methods have it."""

from __future__ import annotations

from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


def train_model(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """w_k <- E epochs of SGD on the local cross-entropy, starting from the task's model; the reply carries w_k.

    Nothing is kept between rounds, the optimiser's momentum included.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import fit

    del private
    model = silo.model(task.trees["model"])
    report = fit(model, silo.train, silo.local_training(task))
    return Reply(to_tree(model), samples=len(silo.train), metrics={"loss": report.loss})
