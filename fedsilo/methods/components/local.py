"""Local training as most methods have it, with the places where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedsilo.errors import MethodError
from fedsilo.methods.components.private_steps import fit_privately, noised_by_training, privacy_of
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State

OWN_STATE = "trainer"
"""Tree of private state with what the job's own training keeps."""

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from fedsilo.learning.examples import Examples
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

    Nothing is kept between rounds but what the job keeps beside the method: the optimiser's state, or its own
    training's. That takes the place of all of it where the job names one.

    :param loss: of a batch; the learning task's by default.
    :param plan: what `fit` does; the job's local training by default.
    :raises MethodError: when the job brings its own training, and the method a loss.
    """
    if silo.spec.training.trainer is not None:
        if loss is not None or plan is not None:
            raise MethodError(
                f"spec.training.trainer: {silo.spec.training.trainer!r}: has no meaning in {silo.spec.method.name}, "
                "whose silos train with a loss or steps of its own; use a method such as fedavg"
            )
        return _trained_by_the_job(silo, task, private)
    model = silo.module(task.trees["model"])
    plan = plan or silo.local_training(task)
    return reply_of_training(silo, task, model, silo.train, plan, loss or silo.loss())


def reply_of_training(
    silo: SiloContext, task: SiloTask, model: nn.Module, examples: Examples, plan: LocalTraining, loss: Loss
) -> Reply:
    """The model after training, in place, and its loss; clipped and with noise where the job asks for that.

    :param examples: the silo's training examples, or others of the same records.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import fit

    if privacy_of(silo) is not None:
        _, mechanisms = fit_privately(silo, task, model, examples, plan, loss)
        # Without its loss, which follows from the examples without noise.
        noised = noised_by_training(model)
        return Reply(to_tree(model), samples=silo.train.records, mechanisms=mechanisms, noised=noised)
    report = fit(model, examples, plan, loss=loss)
    return Reply(to_tree(model), samples=len(examples), metrics={"loss": report.loss})


def _trained_by_the_job(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """w_k as the job's own function makes it, with what that keeps."""
    from fedsilo.learning.models import to_tree

    state = private.tree(OWN_STATE) if OWN_STATE in private.trees else {}
    model = silo.module(task.trees["model"])
    names = list(model.state_dict())
    outcome = silo.own_training(task, model, state)
    # In the order of the job's tensors, which a model of the function's need not have.
    tree = to_tree(outcome.model)
    return Reply(
        {name: tree[name] for name in names},
        samples=outcome.samples,
        metrics={name: float(value) for name, value in outcome.metrics.items()},
        private=_with_own_state(private, outcome.state),
    )


def _with_own_state(private: State, kept: Mapping[str, np.ndarray]) -> State:
    """The private state with what the function keeps, which may be nothing any more."""
    others = {name: tree for name, tree in private.trees.items() if name != OWN_STATE}
    return State({**others, OWN_STATE: dict(kept)} if kept else others, private.values)


class PlainTraining:
    """The step of methods whose silos train on the cross-entropy and nothing else; several at once where asked."""

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """Reply of one silo with its locally trained model w_k, as `train_model` makes it."""
        return train_model(silo, task, private)

    def batched_replies(self, silos: Sequence[SiloContext], tasks: Sequence[SiloTask]) -> list[Reply]:
        """w_k of every silo, equal to that of each by itself up to rounding."""
        from fedsilo.learning.batched import BatchedClient, fit_batched

        if privacy_of(silos[0]) is not None:  # whose steps are of single examples
            return [self(silo, task, State()) for silo, task in zip(silos, tasks, strict=True)]
        clients = [
            BatchedClient(task.trees["model"], silo.train, silo.local_training(task))
            for silo, task in zip(silos, tasks, strict=True)
        ]
        trained = fit_batched(silos[0].model(clients[0].tree), clients)
        return [
            Reply(tree, samples=report.examples, metrics={"loss": report.loss}) for tree, report in trained
        ]
