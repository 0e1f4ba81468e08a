"""SCAFFOLD is federated averaging with control variates against client drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II.

A silo's gradients are corrected by c - c_k, and the model is stepped by `serverLearningRate`. Corrected steps have
no momentum (except in `variant: niid-bench`), since only then is c_k the mean gradient. Momentum rho would carry a
step up to 1 / (1 - rho) times as far, ten times at 0.9, so at the same rate SCAFFOLD learns more slowly. A higher
rate compensates while training remains stable: where silos have few classes each, five times was too much for some
(docs/results/claims.md), and with `gradientClip: 10` ten times was not, with three seeds (docs/results/causes.md).

Weight decay applies, except in `variant: released`. Means are uniform over the silos. The aggregator computes the
change of c_k from the model and the number of steps, so only the model is sent. In `variant: feddyn` silos report
their sizes in an additional first round. BatchNorm's statistics are averaged, without control variate, since a
step could make a variance negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.control_variates import MAP_CODE, ControlVariateRule, train_controlled
from fedsilo.methods.components.controlled_averaging import (
    BY_STEPS,
    ControlledBySizeServer,
    ControlledServer,
)
from fedsilo.methods.components.local_steps import stepping
from fedsilo.methods.components.sizes import PHASE, SIZES, STEP, state_size
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import MethodConfig, Phase, Reply, ServerHalf, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.state import State
from fedsilo.methods.step import Step
from fedsilo.methods.traits import SGD, UNRESTRICTED_TASKS, AveragingTraits, StateTraits, TrainingTraits

RULES: Mapping[str, ControlVariateRule] = {
    "paper": ControlVariateRule(),
    "released": MAP_CODE,
    "niid-bench": ControlVariateRule(momentum=True, after_step=True),
    "feddyn": ControlVariateRule(base_rate=True, by_size=True),
}


class ScaffoldConfig(MethodConfig):
    """Settings of SCAFFOLD in a job's `spec.method.config`."""

    variant: Literal["paper", "released", "niid-bench", "feddyn"] = Field(
        default="paper",
        description="paper: steps without momentum; c moves by the changes over all N silos. released: MAP's code, "
        "over the silos of the round, the rate without warm-up in c_k, gradients clipped before they are corrected. "
        "niid-bench: momentum, corrected after each step, means by samples. feddyn: c by the silos' sizes [paper, "
        "Algorithm 1; released codes].",
    )
    server_learning_rate: float = Field(
        default=1.0, gt=0, le=10, description="Step eta_g of the server [paper: 1; MAP: 0.5, 0.75, 0.9]."
    )

    @property
    def rule(self) -> ControlVariateRule:
        """The arithmetic of the variant."""
        return RULES[self.variant]


class Scaffold(OneModel):
    """Declaration of SCAFFOLD, with a control variate at the aggregator and one in each silo."""

    name = "scaffold"
    title = "Stochastic controlled averaging"
    use_when = "silos drift apart in many local steps, at a rate that is tuned for it"
    citation = (
        "S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled "
        "Averaging for Federated Learning. ICML 2020."
    )
    keeps = StateTraits("the model and the control variate c", "its control variate c_k")
    training = TrainingTraits(SGD)
    models = JobModels(SharedModel(whole="a control variate belongs to every learned tensor"))
    tasks = UNRESTRICTED_TASKS
    Config = ScaffoldConfig
    averaging = AveragingTraits(uniform_variants=("paper", "released", "feddyn"))
    config: ScaffoldConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and the number of local steps, from which the variate's change follows."""
        train = stepping(self.spec.training, BY_STEPS)
        return {SIZES: STEP, "train": train} if self.config.rule.by_size else {"train": train}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds; where silos count by size, they state it first."""
        return (*((PHASE,) if self.config.rule.by_size else ()), *super().phases())

    @override
    def server(self) -> ServerHalf[Any]:
        """Model and control variate."""
        half = ControlledServer if self.reads is Sums else ControlledBySizeServer
        return half(self.config.rule, self.config.server_learning_rate)

    @property
    @override
    def reads(self) -> type[Mean]:
        """Sums, unless silos count by their sizes."""
        return Updates if self.config.rule.by_size else Sums

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Corrected local steps, and the new c_k."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_controlled(silo, task, private, self.config.rule)

        return {"train": train, SIZES: state_size}
