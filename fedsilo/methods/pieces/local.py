"""Local training as most methods have it, with the places where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State

if TYPE_CHECKING:
    from fedsilo.learning.training import LocalTraining, Loss


def train_model(
    silo: SiloContext,
    task: SiloTask,
    private: State,
    *,
    loss: Loss | None = None,
    plan: LocalTraining | None = None,
) -> Reply:
    """w_k <- E epochs of SGD on the local loss, starting from the task's model; the reply carries w_k.

    Nothing is kept between rounds, the optimiser's momentum included.

    :param loss: of a batch; cross-entropy by default.
    :param plan: what `fit` does; the job's local training by default.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import cross_entropy_loss, fit

    del private
    model = silo.model(task.trees["model"])
    report = fit(model, silo.train, plan or silo.local_training(task), loss=loss or cross_entropy_loss)
    return Reply(to_tree(model), samples=len(silo.train), metrics={"loss": report.loss})


class PlainTraining:
    """The step of methods whose silos train on the cross-entropy and nothing else; several at once where asked."""

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """w_k, as `train_model`."""
        return train_model(silo, task, private)

    def batched(self, silos: Sequence[SiloContext], tasks: Sequence[SiloTask]) -> list[Reply]:
        """w_k of every silo, equal to that of each by itself up to rounding."""
        from fedsilo.learning.batched import BatchedClient, fit_batched

        clients = [
            BatchedClient(task.trees["model"], silo.train, silo.local_training(task))
            for silo, task in zip(silos, tasks, strict=True)
        ]
        trained = fit_batched(silos[0].model(clients[0].tree), clients)
        return [
            Reply(tree, samples=report.examples, metrics={"loss": report.loss}) for tree, report in trained
        ]
