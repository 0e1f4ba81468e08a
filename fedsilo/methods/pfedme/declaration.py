"""Declaration of pFedMe, which says what a job may not ask of its silos."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.pfedme.config import PFedMeConfig
from fedsilo.methods.reading import Sums
from fedsilo.methods.traits import SGD, AveragingTraits, StateTraits, TaskTraits, TrainingTraits

SEVERAL_STEPS = "whose silos take several steps on each batch"
"""Why a batch is neither one of several nor its loss scaled."""


class PFedMe(OneModel):
    """Declaration of pFedMe, whose silos keep a model of their own that is drawn to the common one."""

    name = "pfedme"
    title = "Personalisation by Moreau envelopes"
    citation = (
        "C. T. Dinh, N. H. Tran, T. D. Nguyen. Personalized Federated Learning with Moreau Envelopes. "
        "NeurIPS 2020."
    )
    keeps = StateTraits(silo="its own model")
    tasks = TaskTraits(needs_features=False)
    Config = PFedMeConfig
    averaging = AveragingTraits(uniform_variants=("map",))
    models = JobModels(SharedModel(whole="a silo's own model is drawn to the whole model"), OwnModel())
    training = TrainingTraits(SGD, refuses_float16=SEVERAL_STEPS, data_parallel=False)
    config: PFedMeConfig

    @override
    def server(self) -> ServerHalf[Sums]:
        """The averaging half, with beta."""
        from fedsilo.methods.pfedme.server import PFedMeServer

        return PFedMeServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """K steps of the silo's own theta on each batch, then a step of w_k towards it."""
        from fedsilo.methods.pfedme.silo import train

        return {"train": partial(train, config=self.config)}

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """Faults of a job that accumulates gradients, since theta takes steps of its own on each whole batch."""
        accumulated = self.spec.training.gradient_accumulation
        if (accumulated or 1) == 1:
            return []
        problem = f"has no meaning in pfedme, {SEVERAL_STEPS}"
        return [("spec.training.gradientAccumulation", accumulated, problem, "remove it")]
