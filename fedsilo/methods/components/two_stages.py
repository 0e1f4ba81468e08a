"""Two stages of local training: restricted softmax for the model that is sent, then plain softmax for the silo's own.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", Algorithm 1. The
second stage goes on from the first one's result with the inherited private model as teacher, and ends in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.inherited import InheritedConfig, inherit, transfer_loss
from fedsilo.methods.components.restricted_softmax import (
    Scaling,
    class_counts,
    class_scales,
    restricted_loss,
)
from fedsilo.methods.interface import PERSONAL_TREE, SiloContext, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import TrainingTraits

if TYPE_CHECKING:
    from fedsilo.learning.training import LocalTraining, Loss

SCALINGS: Mapping[str, Scaling] = {
    "paper": "mask",
    "complete": "share",
    "released": "sole",
    "released-mask": "mask",
}

CITATION = (
    "X.-C. Li, S. Song, Y. Li, B. Li, Y. Shao, Y. Yang, D.-C. Zhan. MAP: Model Aggregation and Personalization in "
    "Federated Learning with Incomplete Classes. 2024."
)

MIN_STEPS = 5
"""Fewest steps of the released code's second stage."""


class TwoStageConfig(InheritedConfig):
    """Settings of both stages of local training."""

    variant: Literal["paper", "complete", "released", "released-mask"] = Field(
        default="paper",
        description="paper: the first half of the local steps is restricted, the second personal; kd is tau^2 KL; "
        "uniform means. complete: the same, with logits times n_c / n, for silos with all classes. released: all local "
        "steps are restricted, and few more are personal, at a lower rate; a class counts as held only where it is the "
        "silo's only one. released-mask: without that slip [MAP, Algorithm 1; MAP, Table III; released code].",
    )
    alpha: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="Scale of a missing class's logit; 1 is no restriction [MAP: 0.9].",
    )
    transfer_weight: float = Field(
        default=0.01, ge=0, le=1, description="lambda in (1 - lambda) CE + lambda L_kt [MAP: 0.01]."
    )

    @property
    @override
    def released(self) -> bool:
        """Whether private models are those of the released code."""
        return self.variant.startswith("released")


@dataclass(frozen=True)
class SecondStage:
    """Second stage of the released code, after all local steps.

    :param part: its steps as a part of the local steps.
    :param rate: its learning rate as a part of the round's.
    """

    part: float
    rate: float


def traits_of(config: TwoStageConfig) -> TrainingTraits:
    """Training traits of the two stages, of which the first alone makes the model that is sent.

    MMD is taken over whole batches, so that training with it is not data-parallel.
    """
    return TrainingTraits(
        data_parallel=config.transfer != "mmd",
        sends_after="all steps" if config.released else "half of the steps",
    )


def first_loss(silo: SiloContext, config: TwoStageConfig) -> Loss:
    """Cross-entropy of logits scaled by class, eq. 8: a class that the silo lacks by alpha, in the paper's variant."""
    return restricted_loss(silo, class_scales(class_counts(silo), config.alpha, SCALINGS[config.variant]))


def stages(
    silo: SiloContext, task: SiloTask, config: TwoStageConfig, released: SecondStage
) -> tuple[LocalTraining, LocalTraining | None]:
    """What the two stages do: of S steps the first takes half, rounded up, and the second the rest, if there is one.

    In the released code the first takes all S, and the second goes on after them.

    :param released: second stage of the released code.
    """
    from fedsilo.learning.training import planned_steps

    plan = silo.local_training(task)
    steps = planned_steps(silo.model(task.trees["model"]), silo.train, plan)
    # An optimiser's kept state is the first stage's: the second trains another model, and always begins without one.
    # What comes of it stays in the silo, so it need not be of many examples.
    second = replace(
        plan, kept=None, min_examples=1, seed=silo.seed("batches", task.phase, task.round, PERSONAL_TREE)
    )
    if config.released:
        more = max(int(released.part * steps), MIN_STEPS)
        return plan, replace(second, lr=released.rate * plan.lr, min_steps=more, max_steps=more)
    half = math.ceil(steps / 2)
    return replace(plan, max_steps=half), replace(second, max_steps=steps - half) if steps > half else None


def personalise(
    silo: SiloContext,
    task: SiloTask,
    private: State,
    sent: Mapping[str, np.ndarray],
    plan: LocalTraining | None,
    config: TwoStageConfig,
) -> State:
    """The silo's private state after the second stage, with the private model made from the model that is sent.

    In the released code BatchNorm's statistics in the private model are then computed anew.
    """
    from fedsilo.learning.models import to_tree
    from fedsilo.learning.training import fit, recompute_statistics

    model = silo.model(sent)
    if plan is not None:
        fit(model, silo.train, plan, loss=transfer_loss(silo, private, config))
    state = inherit(silo, task, private, to_tree(model), config)
    if not config.released:
        return state
    own = silo.model(state.tree(PERSONAL_TREE))
    recompute_statistics(own, silo.train, silo.spec.training.batch_size)
    return state.with_trees(**{PERSONAL_TREE: to_tree(own)})
