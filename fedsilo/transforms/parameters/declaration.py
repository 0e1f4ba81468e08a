"""Parts of a model: tensors that silos share, that are frozen, and that are a silo's own; and the initial weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import INITIAL_WEIGHTS, LOCAL, PERSONAL_TREE, Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.parameters.conflicts import check_parts
from fedsilo.transforms.transform import Aggregator, AggregatorSide, TrainerSide, Transform


class ParametersTransform(Transform):
    """Hands out what silos need not share, and keeps a silo's own tensors in it."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job whose model has parts, or begins with a file."""
        model = method.spec.model
        return cls(method) if model.parameters is not None or model.initial_weights is not None else None

    @override
    def owns(self, name: str) -> bool:
        """The tree of all initial weights."""
        return name == INITIAL_WEIGHTS

    @override
    def keeps(self, name: str) -> bool:
        """The silo's local tensors, and the whole model that comes of them; without parts that is the method's."""
        return self.spec.model.parameters is not None and name in (LOCAL, PERSONAL_TREE)

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """A method or an evaluation that needs the whole model."""
        return check_parts(self.method)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """The initial weights, and the whole model."""
        from fedsilo.transforms.parameters.aggregator import ParametersAggregatorSide

        return ParametersAggregatorSide(place.context, self.method.models.hand_out_initial(self.method.spec))

    @override
    def in_trainer(self) -> TrainerSide:
        """The division of what a silo half replies."""
        from fedsilo.transforms.parameters.trainer import ParametersTrainerSide

        return ParametersTrainerSide(self.method)
