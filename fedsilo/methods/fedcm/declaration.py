"""Declaration of FedCM with what silos send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.methods.components.local_steps import stepping
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.fedcm.config import BY_STEPS, FedCMConfig
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.step import Step
from fedsilo.methods.traits import SGD, UNRESTRICTED_TASKS, AveragingTraits, StateTraits, TrainingTraits


class FedCM(OneModel):
    """Declaration of FedCM, averaging with client-level momentum."""

    name = "fedcm"
    title = "Client-level momentum"
    citation = (
        "J. Xu, S. Wang, L. Wang, A. C.-C. Yao. FedCM: Federated Learning with Client-level Momentum. 2021."
    )
    keeps = StateTraits("the model and the mean step of the last round")
    training = TrainingTraits(SGD)
    models = JobModels(SharedModel(whole="the direction of the last round is that of every learned tensor"))
    tasks = UNRESTRICTED_TASKS
    Config = FedCMConfig
    averaging = AveragingTraits("uniform")
    config: FedCMConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and the number of local steps, from which Delta follows."""
        return {"train": stepping(self.spec.training, BY_STEPS)}

    @override
    def server(self) -> ServerHalf[Sums]:
        from fedsilo.methods.fedcm.server import FedCMServer

        return FedCMServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Steps along the silo's gradient and Delta."""
        from fedsilo.methods.fedcm.silo import train

        return {"train": partial(train, config=self.config)}
