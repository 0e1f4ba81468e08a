"""The models that a method makes: what it yields for all silos, and models of the silos' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.api.parameters import ParametersSpec
from fedsilo.methods.interface import Snapshot
from fedsilo.methods.state import Scalar


@dataclass(frozen=True)
class SharedModel:
    """What a method yields for all silos, the tensors of its snapshots.

    :param is_model: whether they are a model, which aggregator or silos score.
    :param whole: why every silo must send the whole model, a clause for people; None where the halves work with those
        tensors that `spec.model.parameters` shares. What a silo half replies is the whole model in any case.
    :param own_classifier: whether every silo has the classifier for itself, so that a job's parts must name it local.
    :param parameters: `spec.model.parameters` of a job that names none; None shares the whole model.
    :param architecture: that of the snapshots, or what tells it from a snapshot's settings; None is the job's own.
    :param report: what `model.json` says of a snapshot for people, as plain JSON values.
    """

    is_model: bool = True
    whole: str | None = "its halves read and write the whole model"
    own_classifier: bool = False
    parameters: ParametersSpec | None = None
    architecture: ModelSpec | Callable[[Mapping[str, Scalar]], ModelSpec] | None = None
    report: Callable[[Snapshot], Mapping[str, Any]] = lambda snapshot: {}


@dataclass(frozen=True)
class OwnModel:
    """A model of each silo's own, in the private tree `PERSONAL`: silos score it, and are never asked for it.

    :param architecture: None is the job's own.
    """

    architecture: ModelSpec | None = None


@dataclass(frozen=True)
class JobModels:
    """All models of a job's method.

    :param personal: None where silos come to hold no models of their own.
    :param silos_need_initial: whether the silo half calls `SiloContext.initial_model`.
    """

    shared: SharedModel = SharedModel()
    personal: OwnModel | None = None
    silos_need_initial: bool = False

    @property
    def scored(self) -> bool:
        """Whether there is anything to score, a model for all silos or models of their own."""
        return self.shared.is_model or self.personal is not None

    def shared_architecture(self, spec: FederatedJobSpec, settings: Mapping[str, Scalar]) -> ModelSpec:
        """Architecture of a snapshot.

        :param settings: those of the snapshot.
        """
        found = self.shared.architecture
        return found(settings) if callable(found) else found or spec.model

    def own_architecture(self, spec: FederatedJobSpec) -> ModelSpec:
        """Architecture of what silos end with, see `in_silos`."""
        return (self.personal and self.personal.architecture) or spec.model

    def in_silos(self, spec: FederatedJobSpec) -> bool:
        """Whether each silo ends with a model of its own: the method's, or the shared one with its local tensors."""
        parameters = spec.model.parameters
        return self.personal is not None or bool(parameters and parameters.local)

    def hand_out_initial(self, spec: FederatedJobSpec) -> bool:
        """Whether tasks carry the initial weights, `INITIAL_WEIGHTS`: a silo may not be able to draw them."""
        model = spec.model
        return model.parameters is not None or (model.initial_weights is not None and self.silos_need_initial)
