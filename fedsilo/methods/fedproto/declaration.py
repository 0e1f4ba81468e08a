"""Declaration of FedProto, with no common model, and of each class one mean of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.methods.fedproto.config import FedProtoConfig
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep, Snapshot
from fedsilo.methods.method import Method
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import StateTraits, TrainingTraits
from fedsilo.wire.combine import BlockSum

MEAN = Payload("class_means", "mean", ("feature",), per_class=True)

BY_COUNT = (
    Payload("class_means", "count", (), "int64", per_class=True, combine=BlockSum()),
    Payload("class_means", "total", ("feature",), per_class=True, combine=BlockSum()),
)
"""The count of a class and that many times its mean: of both, the sums over silos give the mean by counts."""


def classes_with_prototypes(snapshot: Snapshot) -> Mapping[str, Any]:
    """What is said of the result: the classes that have a prototype."""
    return {"prototypes": sorted(int(name.rpartition("/")[2]) for name in snapshot.tree)}


class FedProto(Method):
    """Declaration of FedProto, whose silos send the mean features of their classes and no model."""

    name = "fedproto"
    title = "Silos' own models, held together by prototypes of classes"
    citation = (
        "Y. Tan, G. Long, L. Liu, T. Zhou, Q. Lu, J. Jiang, C. Zhang. FedProto: Federated Prototype Learning across "
        "Heterogeneous Clients. AAAI 2022."
    )
    keeps = StateTraits("the prototypes", "its own model")
    Config = FedProtoConfig
    models = JobModels(
        SharedModel(
            is_model=False,
            whole="no part of a model is shared",
            architecture=ModelSpec(name="prototypes"),
            report=classes_with_prototypes,
        ),
        OwnModel(),
        silos_need_initial=True,
    )
    config: FedProtoConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """In MAP's code the loss has means over the classes of whole batches."""
        return TrainingTraits(data_parallel=self.config.variant == "paper")

    @override
    def steps(self) -> Mapping[str, Step]:
        """The mean feature of each class; for means by counts also these."""
        return {"train": Step((MEAN,) if self.config.variant == "paper" else BY_COUNT, (LOSS,))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    @override
    def server(self) -> ServerHalf[Sums]:
        """What averages the prototypes."""
        from fedsilo.methods.fedproto.server import FedProtoServer

        return FedProtoServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """What trains the silo's own model near them."""
        from fedsilo.methods.fedproto.silo import train_near_prototypes

        return {"train": train_near_prototypes(self.config)}
