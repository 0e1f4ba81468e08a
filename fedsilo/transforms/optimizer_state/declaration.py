"""The optimiser's state that a silo keeps from round to round: `spec.training.optimizer.state: keep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.optimizer_state.conflicts import check_kept_state
from fedsilo.transforms.optimizer_state.names import PREFIX
from fedsilo.transforms.transform import TrainerSide, Transform


class OptimizerStateTransform(Transform):
    """Has local training go on with the optimiser's state of the silo's last round."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job that keeps it."""
        return cls(method) if method.spec.training.optimizer.state == "keep" else None

    @override
    def keeps(self, name: str) -> bool:
        """Moments, and the steps that they are of."""
        return name.startswith(PREFIX)

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """A method whose training begins anew in each round."""
        return check_kept_state(self.method)

    @override
    def in_trainer(self) -> TrainerSide:
        """What has training go on with the state, and keeps what comes of it."""
        from fedsilo.transforms.optimizer_state.trainer import OptimizerStateTrainerSide

        return OptimizerStateTrainerSide()
