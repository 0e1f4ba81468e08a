"""Sums over silos of which the aggregator sees no summand: `spec.aggregation.secure`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.guard import GuardPlace, GuardSide
from fedsilo.transforms.secure_sum.conflicts import check_secure
from fedsilo.transforms.secure_sum.steps import (
    PREFIX,
    STEPS,
    layout_of,
    masked_contract,
    message_contract,
    secure_exchanges,
    sums_text,
)
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Transform
from fedsilo.wire import Contract


class SecureSumTransform(Transform):
    """Has silos mask their updates, so that they cancel in the sum of all."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job whose aggregator is to see sums only."""
        return cls(method) if method.spec.aggregation.secure else None

    @override
    def owns(self, name: str) -> bool:
        """Messages between silos, and the sum."""
        return name.startswith(PREFIX)

    @override
    def is_for_guards(self, tree: str) -> bool:
        return tree.startswith(PREFIX)

    @override
    def message(self, step: str) -> Contract | None:
        """A guard's message in one of the protocol's steps."""
        return message_contract(self.spec, step) if step in STEPS else None

    @override
    def plan(self, exchanges: list[Exchange]) -> list[Exchange]:
        """The steps of a sum in the place of each exchange."""
        return [step for exchange in exchanges for step in secure_exchanges(exchange)]

    @override
    def contract(self, contract: Contract) -> Contract:
        """The masked vector in the place of an update."""
        return masked_contract(layout_of(self.method, contract))

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """What sums cannot give."""
        return check_secure(self.method, any(exchange.phase.everyone for exchange in exchanges))

    @override
    def describe(self) -> Mapping[str, str]:
        """Over which silos the sums are."""
        return {"sums": sums_text(self.spec)}

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """Aggregator's side of the protocol, or the same sums in the open where there is nobody to hide them from."""
        from fedsilo.transforms.secure_sum.aggregator import MaskedSums, OpenSums

        return OpenSums(self.method, place) if place.signers is None else MaskedSums(self.method, place)

    @override
    def in_guard(self, place: GuardPlace) -> GuardSide:
        """The silo's part of the protocol; nothing where there is nobody to hide anything from."""
        from fedsilo.transforms.secure_sum.guard import SecureSumGuardSide

        return (
            GuardSide()
            if place.identity is None
            else SecureSumGuardSide(self.method, place.silo, place.identity)
        )
