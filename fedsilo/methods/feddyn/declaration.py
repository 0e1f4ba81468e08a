"""Declaration of FedDyn, which says what its silos send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.components.sizes import PHASE, SIZES, STEP, state_size
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.feddyn.config import FedDynConfig
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep
from fedsilo.methods.method import averaging_of
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.step import Step
from fedsilo.methods.traits import UNRESTRICTED_TASKS, AveragingTraits, StateTraits


class FedDyn(OneModel):
    """Declaration of FedDyn, in which every silo keeps a memory between rounds."""

    name = "feddyn"
    title = "Dynamic regularisation"
    use_when = "labels are skewed, rounds are few, and each silo may keep a memory"
    citation = (
        "D. A. E. Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama. Federated Learning Based "
        "on Dynamic Regularization. ICLR 2021."
    )
    keeps = StateTraits(
        "the model and the mean of the silos' memories", "its memory h_k, the sum of the changes that it made"
    )
    models = JobModels(SharedModel(whole="a silo's memory is of every learned tensor"))
    tasks = UNRESTRICTED_TASKS
    Config = FedDynConfig
    averaging = AveragingTraits("uniform")
    config: FedDynConfig

    @property
    def by_size(self) -> bool:
        """Whether alpha depends on a silo's size."""
        return self.config.variant == "released"

    @override
    def steps(self) -> Mapping[str, Step]:
        """Whole models, from which the changes of the silos' memories follow."""
        return {**super().steps(), **({SIZES: STEP} if self.by_size else {})}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds; where silos count by size, they state it first."""
        return (*((PHASE,) if self.by_size else ()), *super().phases())

    @override
    def server(self) -> ServerHalf[Any]:
        """Model and mean memory."""
        from fedsilo.methods.feddyn.server import FedDynOfSilosServer, FedDynServer

        return FedDynServer(self.config) if self.reads is Sums else FedDynOfSilosServer(self.config)

    @property
    @override
    def reads(self) -> type[Mean]:
        """Sums, unless alpha depends on silos' sizes, or memories are averaged otherwise than models."""
        alike = self.config.variant == "map" or averaging_of(self) == "uniform"
        return Sums if alike and not self.by_size else Updates

    @override
    def check_sums(self) -> list[Finding]:
        """Sums are of silos that count alike."""
        weights = self.spec.aggregation.weights
        if self.reads is Sums or self.by_size:
            return super().check_sums()
        problem = "averages models otherwise than feddyn averages memories, which sums do not give"
        return [*super().check_sums(), ("spec.aggregation.weights", weights, problem, "write uniform")]

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Training on the regularised loss, and the new memory."""
        from fedsilo.methods.feddyn.silo import train

        return {"train": partial(train, config=self.config), SIZES: state_size}
