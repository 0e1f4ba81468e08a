"""Declaration of pFedMe, and its server half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fedsilo.methods.building_blocks.buffers import is_statistic
from fedsilo.methods.fedavg import OneModel, OneModelServer
from fedsilo.methods.interface import Exchange, ServerContext, ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.pfedme.config import PFedMeConfig
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.traits import SGD, Averaging, Kept, Tasks, TrainingTraits

SEVERAL_STEPS = "whose silos take several steps on each batch"
"""Why a batch is neither one of several nor its loss scaled."""


@dataclass(frozen=True)
class PFedMeServer(OneModelServer):
    """w <- (1 - beta) w + beta times the mean of w_k. Tree: `model`."""

    config: PFedMeConfig

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The mean itself where beta is 1, and of BatchNorm's statistics always."""
        old, mean, beta = state.tree("model"), sums.mean("model"), self.config.beta
        if beta != 1:
            mean = {
                name: w if is_statistic(name) else ((1 - beta) * old[name] + beta * w).astype(w.dtype)
                for name, w in mean.items()
            }
        return state.with_trees(model=mean)


class PFedMe(OneModel):
    """Declaration of pFedMe."""

    name = "pfedme"
    title = "Personalisation by Moreau envelopes"
    citation = (
        "C. T. Dinh, N. H. Tran, T. D. Nguyen. Personalized Federated Learning with Moreau Envelopes. "
        "NeurIPS 2020."
    )
    keeps = Kept(silo="its own model")
    tasks = Tasks(needs_features=False)
    Config = PFedMeConfig
    averaging = Averaging(uniform_variants=("map",))
    models = JobModels(SharedModel(whole="a silo's own model is drawn to the whole model"), OwnModel())
    training = TrainingTraits(SGD, refuses_float16=SEVERAL_STEPS, data_parallel=False)
    config: PFedMeConfig

    def server(self) -> ServerHalf[Sums]:
        """The averaging half, with beta."""
        return PFedMeServer(self.config)

    def silo(self) -> Mapping[str, SiloStep]:
        """For each batch: theta by K steps, then a step of w_k towards it."""
        from fedsilo.methods.pfedme.silo import train

        return {"train": partial(train, config=self.config)}

    def check(self) -> list[tuple[str, object, str, str]]:
        """Batches are whole: theta takes steps of its own on each."""
        accumulated = self.spec.training.gradient_accumulation
        if (accumulated or 1) == 1:
            return []
        problem = f"has no meaning in pfedme, {SEVERAL_STEPS}"
        return [("spec.training.gradientAccumulation", accumulated, problem, "remove it")]
