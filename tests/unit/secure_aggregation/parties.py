"""A whole sum in one process, with silos that drop out at any stage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsilo.secure_aggregation.aggregator_side import add_masked, agreed_broadcast, unmask
from fedsilo.secure_aggregation.messages import KeyAnnouncement, SumContext, Unmasking
from fedsilo.secure_aggregation.silo_side import SiloSide
from fedsilo.wire.keys import SigningKey

KEYS = [SigningKey.from_seed(place.to_bytes(32, "big")) for place in range(1, 51)]

MODEL = bytes(32)
"""Digest of what silos were sent."""


def names(count: int) -> list[str]:
    return [f"silos/s{place}" for place in range(count)]


def context_of(count: int, threshold: int | None = None, exchange: str = "r00001-train") -> SumContext:
    members = {name: key.verify_key for name, key in zip(names(count), KEYS, strict=False)}
    return SumContext("uid", exchange, members, threshold or max(3, count // 2 + 1))


@dataclass
class Sum:
    """Everything that an aggregator sees of one sum.

    :ivar sealed: recipient -> sender -> ciphertext.
    """

    context: SumContext
    silos: dict[str, SiloSide]
    announced: dict[str, KeyAnnouncement] = field(default_factory=dict)
    sealed: dict[str, dict[str, bytes]] = field(default_factory=dict)
    masked: dict[str, np.ndarray] = field(default_factory=dict)
    survivors: list[str] = field(default_factory=list)
    confirmed: dict[str, bytes] = field(default_factory=dict)
    unmaskings: dict[str, Unmasking] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, threshold: int | None = None) -> Sum:
        context = context_of(count, threshold)
        return cls(context, {name: SiloSide.begin(context, name) for name in names(count)})

    def key(self, silo: str) -> SigningKey:
        return KEYS[names(50).index(silo)]

    def resume(self) -> None:
        """Kill every silo and have it go on from what it has kept."""
        self.silos = {
            name: SiloSide.from_dict(self.context, name, side.to_dict()) for name, side in self.silos.items()
        }

    def announce(self, silos: Collection[str]) -> None:
        for name in silos:
            one = self.silos[name].announcement(self.key(name))
            self.announced[name] = KeyAnnouncement.from_bytes(one.to_bytes())

    def share(self, silos: Collection[str]) -> None:
        sent = {}
        for name in silos:
            self.silos[name], sent[name] = self.silos[name].shares(self.announced)
        self.sealed = {
            to: {sender: found[to] for sender, found in sent.items() if sender != to} for to in silos
        }

    def mask(self, silos: Collection[str], vectors: dict[str, np.ndarray], sent: bytes = MODEL) -> None:
        for name in silos:
            self.silos[name], self.masked[name] = self.silos[name].mask_vector(
                self.announced, self.sealed[name], vectors[name], sent
            )
        self.survivors = list(silos)

    def confirm(self, silos: Collection[str]) -> None:
        for name in silos:
            self.silos[name], self.confirmed[name] = self.silos[name].confirmation(
                self.sealed[name], self.survivors, self.key(name)
            )

    def reveal(self, silos: Collection[str]) -> None:
        for name in silos:
            found = self.silos[name].unmasking(
                self.announced, self.sealed[name], self.survivors, self.confirmed
            )
            sharers = list(self.sealed)
            content = found.to_bytes(sharers)
            self.unmaskings[name] = Unmasking.from_bytes(content, sharers, self.survivors)

    def total(self) -> np.ndarray:
        total = np.zeros(len(next(iter(self.masked.values()))), np.uint64)
        add_masked(total, self.masked.values())
        sent = agreed_broadcast(self.context, self.survivors, self.confirmed)
        unmask(total, self.context, self.announced, list(self.sealed), self.survivors, self.unmaskings, sent)
        return total


def complete_sum(
    count: int,
    stages: Sequence[Collection[str]],
    vectors: dict[str, np.ndarray],
    threshold: int | None = None,
) -> Sum:
    """A sum of which these silos take part in the stages: announce, share, mask, confirm, reveal."""
    found = Sum.of(count, threshold)
    found.announce(stages[0])
    found.share(stages[1])
    found.mask(stages[2], vectors)
    found.confirm(stages[3])
    found.reveal(stages[4])
    return found


def vectors_of(count: int, size: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2**64, size, dtype=np.uint64) for name in names(count)}
