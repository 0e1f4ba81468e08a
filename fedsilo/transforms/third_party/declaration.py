"""Transforms of other packages in a job: `spec.transforms`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.api.text import comma_separated
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.third_party import registry
from fedsilo.transforms.third_party.conflicts import check_transform
from fedsilo.transforms.third_party.passages import blocks_of, passages_of, require_decodable
from fedsilo.transforms.transform import Aggregator, AggregatorSide, TrainerSide, Transform
from fedsilo.wire import Contract

PREFIX = "transforms."
"""Begins the names of what a silo keeps for them."""


class ThirdPartyTransform(Transform):
    """Has other tensors sent than those of a model, as classes of other packages say."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        self.bound = registry.bind(method.spec)

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job that asks for any.

        :raises ManifestFaults: when one is not installed here, or does not take its settings.
        """
        return cls(method) if method.spec.transforms else None

    @override
    def keeps(self, name: str) -> bool:
        """What silos keep of what updates have left out."""
        return name.startswith(PREFIX)

    @override
    def contract(self, contract: Contract) -> Contract:
        """The contract with what is sent in the place of the model's tensors."""
        passages = passages_of(self.bound, contract)
        if not passages:
            return contract
        decodable = partial(require_decodable, passages)
        return replace(contract, blocks=blocks_of(contract, passages), decoded=contract, decodable=decodable)

    @override
    def describe(self) -> Mapping[str, str]:
        """What is sent in the place of models."""
        names = comma_separated([each.name for each in self.spec.transforms or ()])
        return {"sends": f"what {names} makes of models"}

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """What they are not made for."""
        for place, transform in enumerate(self.bound):
            yield from check_transform(self.spec, place, transform)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """What makes models of updates."""
        from fedsilo.transforms.third_party.aggregator import ThirdPartyAggregatorSide

        return ThirdPartyAggregatorSide(self.bound, place)

    @override
    def in_trainer(self) -> TrainerSide:
        """What puts others in the place of a reply's tensors."""
        from fedsilo.transforms.third_party.trainer import ThirdPartyTrainerSide

        return ThirdPartyTrainerSide(self.bound, PREFIX)
