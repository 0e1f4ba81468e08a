"""Ditto is federated averaging, and beside it a model of each silo's own that is pulled towards the common one.

Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1:
v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t)), where w^t is the model that the silo was given.

A silo's own model begins with the initial weights, and trains on the same batches as the sent one, in an optimiser
of its own; lambda is `pullWeight`. In `variant: released` each step is of both, and so is `gradientClip`. The
reported training loss is the sent model's. The aggregator takes a uniform mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.own_models import own_model
from fedsilo.methods.components.proximal import Distance, proximal_loss
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import PERSONAL_TREE, MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.state import State
from fedsilo.methods.traits import AveragingTraits, StateTraits

if TYPE_CHECKING:
    from torch import Tensor

    from fedsilo.learning.training import Loss

DISTANCES: Mapping[str, Distance | None] = {"paper": "squared", "released": None, "map": "huber"}


class PullConfig(MethodConfig):
    """Settings of the pull on a silo's own model towards the common one."""

    pull_weight: float = Field(
        default=1.0, ge=0, description="lambda; 0 trains alone [paper: 0.05 to 2; released code: 1]."
    )

    @property
    def distance(self) -> Distance | None:
        """What pulls v_k towards w^t; None where it is pulled towards w_k as that moves."""
        return "squared"


class DittoConfig(PullConfig):
    """Settings of Ditto, the form and the weight of the pull."""

    variant: Literal["paper", "released", "map"] = Field(
        default="paper",
        description="paper: (lambda / 2) ||v - w^t||^2. released: lambda ||v - w||, not squared, where w is the common "
        "model as the silo trains it, step by step. map: lambda times the mean Huber distance of the tensors to w^t, "
        "which is far weaker [paper, eq. 1 and Algorithm 1; released code; MAP's released code].",
    )

    @property
    @override
    def distance(self) -> Distance | None:
        return DISTANCES[self.variant]


class Ditto(FedAvg):
    """Declaration of Ditto, FedAvg with a model of each silo's own near the common one."""

    name = "ditto"
    title = "Federated averaging, and models of silos' own near the common one"
    use_when = "each silo shall have a model of its own that stays near the common one"
    citation = (
        "T. Li, S. Hu, A. Beirami, V. Smith. Ditto: Fair and Robust Federated Learning Through Personalization. "
        "ICML 2021."
    )
    keeps = StateTraits(silo="its own model v_k")
    Config: ClassVar[type[MethodConfig]] = DittoConfig
    averaging = AveragingTraits("uniform")
    models = JobModels(
        SharedModel(whole="a silo's own model is pulled towards the whole model"),
        OwnModel(),
        silos_need_initial=True,
    )
    config: PullConfig

    def shared_loss(self, silo: SiloContext) -> Loss:
        """What the model that is sent is trained on."""
        return silo.loss()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k and v_k, on the same batches."""
        distance = self.config.distance
        return {"train": partial(self._train, distance=distance) if distance else self._train_at_once}

    def _train(self, silo: SiloContext, task: SiloTask, private: State, *, distance: Distance) -> Reply:
        """w_k from w^t, as in FedAvg; v_k with its pull towards w^t, for which it does not matter which is first."""
        from fedsilo.learning.models import to_tree
        from fedsilo.learning.training import fit

        reply = train_model(silo, task, private, loss=self.shared_loss(silo))
        own = silo.module(own_model(silo, private))
        pulled = proximal_loss(silo, task.trees["model"], self.config.pull_weight, distance=distance)
        # An optimiser's kept state is that of the model that is sent.
        fit(own, silo.train, replace(silo.local_training(task), kept=None), loss=pulled)
        return replace(reply, private=private.with_trees(**{PERSONAL_TREE: to_tree(own)}))

    def _train_at_once(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """Each step moves v_k, towards w_k as it is before the step, and w_k; they are clipped as one.

        The loss that is reported is that of w_k, as in the other forms.
        """
        import torch
        from torch import nn

        from fedsilo.learning.models import to_tree
        from fedsilo.learning.training import fit

        alone, shared, weight = silo.loss(), self.shared_loss(silo), self.config.pull_weight

        def loss(both: Any, features: Tensor, labels: Tensor) -> Tensor:
            pairs = zip(both["own"].parameters(), both["shared"].parameters(), strict=True)
            apart = torch.cat([(v - w.detach()).flatten() for v, w in pairs]).norm()
            common = shared(both["shared"], features, labels)
            own: Tensor = alone(both["own"], features, labels) + weight * apart
            return common + (own - own.detach())  # the sum's gradient, and the value of the first

        models = {"shared": silo.module(task.trees["model"]), "own": silo.module(own_model(silo, private))}
        report = fit(nn.ModuleDict(models), silo.train, silo.local_training(task), loss=loss)
        kept = private.with_trees(**{PERSONAL_TREE: to_tree(models["own"])})
        return Reply(to_tree(models["shared"]), len(silo.train), metrics={"loss": report.loss}, private=kept)
