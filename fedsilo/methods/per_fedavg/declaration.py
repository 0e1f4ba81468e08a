"""Declaration of Per-FedAvg, with what its silos send, and the exchange after training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.per_fedavg.config import PERSONALISE, PerFedAvgConfig
from fedsilo.methods.reading import Sums
from fedsilo.methods.schedule import answers_may_differ
from fedsilo.methods.step import LOSS, Step
from fedsilo.methods.traits import SGD, AveragingTraits, StateTraits, TaskTraits, TrainingTraits


class PerFedAvg(OneModel):
    """Declaration of Per-FedAvg, with one exchange after training in which silos make their own models."""

    name = "per-fedavg"
    title = "A common model that is one gradient step from each silo's own"
    citation = (
        "A. Fallah, A. Mokhtari, A. Ozdaglar. Personalized Federated Learning with Theoretical Guarantees: A "
        "Model-Agnostic Meta-Learning Approach. NeurIPS 2020."
    )
    keeps = StateTraits(silo="its own model")
    training = TrainingTraits(SGD, sends_after="one batch")  # the last exchange's loss is of one
    tasks = TaskTraits(needs_features=False)
    Config = PerFedAvgConfig
    averaging = AveragingTraits(uniform_variants=("map",))
    models = JobModels(SharedModel(whole="a silo's own model is a step from the whole model"), OwnModel())
    config: PerFedAvgConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """Whole models in training, a loss afterwards."""
        return {**super().steps(), PERSONALISE: Step(metrics=(LOSS,))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """The training, and one exchange with all silos."""
        return (*super().phases(), Phase(PERSONALISE, 1, PERSONALISE, everyone=True))

    @override
    def check_sums(self) -> list[Finding]:
        """Sums over fewer silos, of which the last two that score a model are of the same one."""
        if not answers_may_differ(self.spec):
            return super().check_sums()
        problem = (
            "is not possible where sums may be over fewer than all silos: per-fedavg has the last model scored twice, "
            "and two sums over other silos show what one has sent"
        )
        remedy = "remove spec.participation.minSilos and fraction, so that all silos must answer"
        return [*super().check_sums(), ("spec.aggregation.secure", True, problem, remedy)]

    @override
    def server(self) -> ServerHalf[Sums]:
        """The averaging half, which ignores the last exchange."""
        from fedsilo.methods.per_fedavg.server import PerFedAvgServer

        return PerFedAvgServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """theta = w - alpha grad l_1(w), w <- w - beta grad l_2(theta) on pairs of batches."""
        from fedsilo.methods.per_fedavg.silo import personalise, train

        steps = {"train": train, PERSONALISE: personalise}
        return {name: partial(step, config=self.config) for name, step in steps.items()}
