"""An inherited private model is a silo's own, which keeps part of itself from one participation to the next.

Li et al., "FedPHP: Federated Personalization with Inherited Private Models", ECML-PKDD 2021, and Li et al.,
"MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes". It lies in the silo's
private state, beside the number of times that the silo took part, and teaches the model that the silo is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.methods.fedavg import FedAvgServer
from fedsilo.methods.interface import (
    PERSONAL_TREE,
    Assignment,
    Exchange,
    MethodConfig,
    ServerContext,
    SiloContext,
    SiloTask,
)
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.state import State, Tree

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss

SELECTIONS = "selections"
"""Value of private state: z_k, rounds that the silo took part in."""

DRAWN_SHARE_SETTING = "drawn"
"""Setting of the task: Q, the part of the silos that is drawn in a round. A silo does not know how many there are."""


class InheritedConfig(MethodConfig):
    """Settings of the private model p_k and of what it teaches."""

    transfer: Literal["kd", "mmd"] = Field(
        default="kd",
        description="What the private model teaches: kd, its logits; mmd, the distribution of its features [FedPHP].",
    )
    transfer_weight: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="lambda in (1 - lambda) CE + lambda L_kt [FedPHP code: 0.1 for KD].",
    )
    temperature: float = Field(
        default=4.0, gt=0, le=1000, description="tau of kd [MAP and released code: 4]."
    )
    inheritance: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="mu in mu_k = mu z_k / (Q T), the part of itself that p_k keeps; Q T is how often a silo takes "
        "part on average [MAP and released code: 0.9].",
    )

    @property
    def released(self) -> bool:
        """Whether private models are those of the released code."""
        return False


def inherited_models(config: InheritedConfig) -> JobModels:
    """The common model, and the private ones; in the released code the initial model is the first teacher."""
    shared = SharedModel(whole="a silo inherits its private model from the whole model")
    return JobModels(shared, OwnModel(), silos_need_initial=config.released)


class InheritingServer(FedAvgServer):
    """Averaging, for silos that inherit. Tree: `model`."""

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w, and Q for the silos' schedule of mu_k."""
        return with_drawn_part(job, super().assign(job, state, exchange, silos))


def with_drawn_part(job: ServerContext, assigned: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """The assignments with Q: the silos that the engine draws, a whole number of them, over all silos."""
    q = job.spec.participation.sample_size(len(job.silos)) / len(job.silos)
    return {
        silo: replace(asked, settings={**asked.settings, DRAWN_SHARE_SETTING: q})
        for silo, asked in assigned.items()
    }


def kept_share(config: InheritedConfig, before: int, expected: float) -> float:
    """mu_k, the part of itself that the private model keeps.

    Printed: mu z_k / (Q T), at most 1, with z_k counting the present participation. Released: z_k counts the earlier
    ones, Q T is rounded down, and mu is the most.

    :param before: earlier participations.
    :param expected: Q T.
    """
    if config.released:
        return min(config.inheritance * before / max(int(expected + 1e-9), 1), config.inheritance)
    return min(config.inheritance * (before + 1) / expected, 1.0)


def private_model(silo: SiloContext, private: State, config: InheritedConfig) -> Tree | None:
    """The silo's private model p_k, or None before its first answer.

    In the released code it is the job's initial model until then.
    """
    if PERSONAL_TREE in private.trees:
        return private.tree(PERSONAL_TREE)
    return silo.initial_model() if config.released else None


def transfer_loss(silo: SiloContext, private: State, config: InheritedConfig) -> Loss:
    """(1 - lambda) CE + lambda L_kt(p_k), p_k in evaluation mode; only CE where there is no p_k yet."""
    import torch
    from torch import Tensor
    from torch.nn import functional

    from fedsilo.learning.models import Model
    from fedsilo.learning.training import cross_entropy_loss
    from fedsilo.learning.transfer import distillation, mmd, tempered_cross_entropy

    tree = private_model(silo, private, config)
    if tree is None:
        return cross_entropy_loss
    teacher = silo.model(tree).eval()
    weight, temperature = config.transfer_weight, config.temperature
    distil = tempered_cross_entropy if config.released else distillation

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        own = model.features(features)
        logits = model.classifier(own)
        with torch.no_grad():
            taught = teacher.features(features)
            told = teacher.classifier(taught)
        if config.transfer == "mmd":
            transfer = mmd(own.flatten(1), taught.flatten(1))
        else:
            transfer = distil(told, logits, temperature)
        return (1 - weight) * functional.cross_entropy(logits, labels) + weight * transfer

    return loss


def inherit(
    silo: SiloContext, task: SiloTask, private: State, new: Mapping[str, np.ndarray], config: InheritedConfig
) -> State:
    """p_k <- mu_k p_k + (1 - mu_k) w_k, or w_k where there was no p_k; z_k <- z_k + 1.

    :param task: with the setting `drawn`.
    :param new: w_k, what the silo has just learned.
    :raises MethodError: the task does not say Q, or says what is no part of the silos.
    """
    q = task.settings.get(DRAWN_SHARE_SETTING)
    if not isinstance(q, int | float) or not 0 < q <= 1:
        problem = "is missing" if q is None else f"{q!r} is not above 0 and at most 1"
        raise MethodError(
            f"task setting {DRAWN_SHARE_SETTING}: {problem}; run the aggregator and the silos in one version"
        )
    before = int(private.values.get(SELECTIONS, 0))
    old = private_model(silo, private, config)
    mu = kept_share(config, before, q * task.phase_rounds)
    tree = dict(new) if old is None else {name: _mixed_tensor(mu, old[name], w) for name, w in new.items()}
    return private.with_trees(**{PERSONAL_TREE: tree}).with_values(**{SELECTIONS: before + 1})


def _mixed_tensor(mu: float, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    if new.dtype.kind == "f":
        return np.asarray(new.dtype.type(mu) * old + new.dtype.type(1 - mu) * new)
    # 1e-9 guards a mean of equal integers, as in averages over silos.
    return np.trunc(mu * old + (1 - mu) * new + 1e-9).astype(new.dtype)
