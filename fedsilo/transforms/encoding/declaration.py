"""Models in fewer bytes on their way: `spec.communication`."""

from __future__ import annotations

from typing import Self

from typing_extensions import override

from fedsilo.encodings.registry import with_encoding
from fedsilo.methods.method import Method
from fedsilo.transforms.encoding.names import PREFIX
from fedsilo.transforms.learned import learned_names
from fedsilo.transforms.transform import Aggregator, AggregatorSide, TrainerSide, Transform
from fedsilo.wire import Contract


class EncodingTransform(Transform):
    """Sends tensors as parts, from which each place makes tensors again."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job in which models are sent as parts, up or down."""
        spec = method.spec
        return cls(method) if spec.upload.is_encoded or spec.download.is_encoded else None

    @override
    def owns(self, name: str) -> bool:
        return name.startswith(PREFIX)

    @override
    def keeps(self, name: str) -> bool:
        """What updates have left out so far."""
        return name.startswith(PREFIX)

    @override
    def contract(self, contract: Contract) -> Contract:
        """The contract in which the model's learned tensors are sent as the job says."""
        return with_encoding(contract, self.spec.upload, learned_names(contract))

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """What makes parts of a broadcast, and tensors of updates."""
        from fedsilo.transforms.encoding.aggregator import EncodingAggregatorSide

        return EncodingAggregatorSide(self.spec, place)

    @override
    def in_trainer(self) -> TrainerSide:
        """What makes tensors of a task, and parts of a reply."""
        from fedsilo.transforms.encoding.trainer import EncodingTrainerSide

        return EncodingTrainerSide(self.method)
