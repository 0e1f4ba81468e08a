"""FedRep trains one representation for all silos, and a head of each silo's own.

Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021, Algorithm 1. The classifier is local, as `spec.model.parameters` has it: it stays in the silo's private state, and
the silo's own model is the common encoder with it.

The classifier is trained first, and in the last epoch the encoder; at `localEpochs: 1` both share the steps
equally. The job's `spec.model.parameters` is `local: [classifier.*]` unless it names more (docs/parameters.md), so
silos score the common encoder with their own classifiers, and `testDataset` is refused. The job's model has the
initial classifier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.api.parameters import ParametersSpec
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.state import State
from fedsilo.methods.traits import ONE_FEATURE, AveragingTraits, StateTraits, TaskTraits, TrainingTraits

if TYPE_CHECKING:
    from torch import nn

    from fedsilo.learning.training import Correction


class FedRepConfig(MethodConfig):
    """Settings of FedRep in a job's `spec.method.config`."""

    variant: Literal["paper", "released", "map"] = Field(
        default="paper",
        description="paper: the head is trained first, and then, in the last local epoch and at most half of the steps,"
        " the encoder. released: the same, and weight decay leaves biases alone. map: both together; uniform means "
        "[paper, Algorithm 1; released code; MAP's released code].",
    )


class FedRep(FedAvg):
    """Declaration of FedRep, whose silos keep their classifiers."""

    name = "fedrep"
    title = "A shared representation with a head for each silo"
    use_when = "the classifier shall stay in the silo, and the encoder be common"
    citation = (
        "L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai. Exploiting Shared Representations for Personalized "
        "Federated Learning. ICML 2021."
    )
    keeps = StateTraits("the encoder", "its classifier")
    models = JobModels(
        SharedModel(whole=None, own_classifier=True, parameters=ParametersSpec(local=("classifier.*",)))
    )
    tasks = TaskTraits(ONE_FEATURE, "a silo's own head is a linear layer on the one feature of each example")
    Config = FedRepConfig
    averaging = AveragingTraits(uniform_variants=("map",))
    config: FedRepConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """Half of the steps are the encoder's, which is sent, unless both train together."""
        together = self.config.variant == "map"
        return TrainingTraits(sends_after="all steps" if together else "half of the steps")

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """h_k from w and its own last value, then w_k from w and h_k."""
        if self.config.variant == "map":
            return {"train": train_model}
        return {"train": partial(train_in_turn, biases_decay=self.config.variant == "paper")}


def train_in_turn(silo: SiloContext, task: SiloTask, private: State, *, biases_decay: bool) -> Reply:
    """The head's epochs with the encoder fixed, then the encoder's with the head fixed.

    Of S local steps the encoder takes those of one epoch, or half where there is only one; of a single step, each.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import fit, has_batch_norm, steps_of

    model, plan, loss = silo.model(task.trees["model"]), silo.local_training(task), silo.loss()
    epoch, steps = steps_of(len(silo.train), plan, has_batch_norm(model))
    last = min(epoch, math.ceil(steps / 2))
    first = max(steps - last, 1)
    decay = None
    if not biases_decay:
        decay, plan = decay_of_weights(plan.weight_decay), replace(plan, weight_decay=0.0)
    with freeze_parameters(model.encoder):
        # The head stays in the silo, so it need not be of many examples.
        head = replace(plan, min_steps=first, max_steps=first, min_examples=1)
        fit(model, silo.train, head, loss=loss, correct=decay)
    seed = silo.seed("batches", task.phase, task.round, "encoder")
    with freeze_parameters(model.classifier):
        encoder = replace(plan, min_steps=last, max_steps=last, seed=seed)
        report = fit(model, silo.train, encoder, loss=loss, correct=decay)
    return Reply(to_tree(model), samples=len(silo.train), metrics={"loss": report.loss})


def decay_of_weights(rate: float) -> Correction:
    """Adds the gradient of the L2 term to those of the parameters that are called a weight."""
    import torch

    @torch.no_grad()
    def correct(model: nn.Module) -> None:
        for name, w in model.named_parameters():
            if w.grad is not None and name.endswith("weight"):
                w.grad += rate * w

    return correct


@contextmanager
def freeze_parameters(module: nn.Module) -> Iterator[None]:
    """Leave these parameters without gradients inside, so that no step changes them."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
