"""Declaration of FedCM: its settings, and what silos send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field

from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, ServerHalf, SiloStep, Step
from fedsilo.methods.pieces.local_steps import STEPS, stepping
from fedsilo.secure_aggregation.layout import Quotient
from fedsilo.tasks.interface import EVERY_TASK

BY_STEPS = Quotient(STEPS)
"""Every silo's part of the average over its steps."""


class FedCMConfig(MethodConfig):
    """Settings."""

    variant: Literal["paper", "fedbr"] = Field(
        default="paper",
        description="paper: no momentum beside Delta. fedbr: the job's momentum, mixed with Delta; the first round, "
        "without Delta, is plain SGD with momentum [paper, Algorithm 2; FedBR's code].",
    )
    alpha: float = Field(
        default=0.1, gt=0, le=1, description="Part of a step that is the silo's own gradient [paper: 0.1]."
    )


class FedCM(FedAvg):
    """Declaration of FedCM."""

    name = "fedcm"
    title = "Client-level momentum"
    citation = (
        "J. Xu, S. Wang, L. Wang, A. C.-C. Yao. FedCM: Federated Learning with Client-level Momentum. 2021."
    )
    at_aggregator = "the model and the mean step of the last round"
    optimizers = frozenset({"sgd"})
    whole_model = "the direction of the last round is that of every learned tensor"
    tasks = EVERY_TASK
    needs_features = False
    Config = FedCMConfig
    default_averaging = "uniform"
    config: FedCMConfig

    def steps(self) -> Mapping[str, Step]:
        """The model and the number of local steps, from which Delta follows."""
        return {"train": stepping(self.spec.training, BY_STEPS)}

    @property
    def beyond_sums(self) -> str | None:
        """Nothing: it goes on from the mean and that of models over steps."""
        return None

    def server(self) -> ServerHalf:
        """Model and direction."""
        from fedsilo.methods.fedcm.server import FedCMServer

        return FedCMServer()

    def silo(self) -> Mapping[str, SiloStep]:
        """Steps along the silo's gradient and Delta."""
        from fedsilo.methods.fedcm.silo import train

        return {"train": partial(train, config=self.config)}
