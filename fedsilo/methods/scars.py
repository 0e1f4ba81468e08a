"""ScaRS is SCAFFOLD whose silos train with FedRS's restricted softmax.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", where it is one
of the combinations that MAP is compared with.

A logit of a missing class is multiplied by `alpha`. Corrected steps have no momentum, as in scaffold
(docs/methods/scaffold.md), so that they are shorter at the same rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.control_variates import MAP_CODE, ControlVariateRule, train_controlled
from fedsilo.methods.components.controlled_averaging import BY_STEPS, ControlledServer
from fedsilo.methods.components.local_steps import stepping
from fedsilo.methods.components.restricted_softmax import (
    Scaling,
    class_counts,
    class_scales,
    restricted_loss,
)
from fedsilo.methods.components.two_stages import CITATION
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import MethodConfig, Reply, ServerHalf, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.step import Step
from fedsilo.methods.traits import SGD, AveragingTraits, StateTraits, TrainingTraits

SCALINGS: Mapping[str, Scaling] = {"paper": "mask", "released": "sole", "released-mask": "mask"}


class ScaRSConfig(MethodConfig):
    """Settings of ScaRS in a job's `spec.method.config`."""

    variant: Literal["paper", "released", "released-mask"] = Field(
        default="paper",
        description="paper: SCAFFOLD on logits of missing classes times alpha. released: control variates as in MAP's "
        "code, and a class counts as held only where it is the silo's only one. released-mask: without that slip "
        "[SCAFFOLD, Algorithm 1, and FedRS; MAP's released code].",
    )
    alpha: float = Field(
        default=0.9, ge=0, le=1, description="Scale of a missing class's logit; 1 is SCAFFOLD [MAP: 0.9]."
    )
    server_learning_rate: float = Field(
        default=1.0, gt=0, le=10, description="Step eta_g of the server [SCAFFOLD: 1; MAP: 0.5, 0.75, 0.9]."
    )

    @property
    def rule(self) -> ControlVariateRule:
        """The arithmetic of control variates: printed, or of the released code."""
        return ControlVariateRule() if self.variant == "paper" else MAP_CODE


class ScaRS(OneModel):
    """Declaration of ScaRS, with control variates, and restricted softmax in the silos."""

    name = "scars"
    title = "Stochastic controlled averaging with restricted softmax"
    citation = CITATION
    keeps = StateTraits("the model and the control variate c", "its control variate c_k")
    training = TrainingTraits(SGD)
    models = JobModels(SharedModel(whole="a control variate belongs to every learned tensor"))
    Config = ScaRSConfig
    averaging = AveragingTraits("uniform")
    config: ScaRSConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and the number of local steps, from which the variate's change follows."""
        return {"train": stepping(self.spec.training, BY_STEPS)}

    @override
    def server(self) -> ServerHalf[Sums]:
        """Model and control variate."""
        return ControlledServer(self.config.rule, self.config.server_learning_rate)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Corrected local steps on the cross-entropy of s_c z_c, and the new c_k."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            scales = class_scales(class_counts(silo), self.config.alpha, SCALINGS[self.config.variant])
            return train_controlled(silo, task, private, self.config.rule, loss=restricted_loss(silo, scales))

        return {"train": train}
