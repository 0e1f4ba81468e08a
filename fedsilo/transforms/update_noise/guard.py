"""Noise on the change of a whole silo in its guard, which alone draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.privacy.mechanism import Mechanism
from fedsilo.transforms.guard import GuardedReply, GuardSide, Pieces, Tensors
from fedsilo.transforms.update_noise.clipped import noise_seed_domain, privatized_pieces
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from fedsilo.wire.tensors import TensorSpec, spec_of


@dataclass(frozen=True)
class NoisedTensors:
    """Tensors of a reply that are noised as they are read.

    :param kept: a copy that nobody else can change.
    """

    reply: GuardedReply
    kept: Tensors
    privacy: UpdatePrivacy
    drawn: Callable[..., np.random.Generator]

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """What they look like, which noise does not change."""
        return {name: spec_of(name, array) for name, array in self.kept.items()}

    def pieces(self) -> Pieces:
        """All of them in the contract's order, in which the noise is drawn."""
        names = [block.name for block in self.reply.contract.blocks if block.name in self.kept]
        if not names:
            return
        answered = self.reply.answered
        with self.reply.model() as base:
            random = self.drawn(*noise_seed_domain(answered.phase, answered.round, self.kept, base))
            for name, piece in privatized_pieces(names, self.kept, base, self.privacy, random):
                yield name, piece.data.cast("B")


class UpdateNoiseGuardSide(GuardSide):
    """Clips a silo's change, and adds noise of the silo's own secret."""

    def __init__(self, privacy: UpdatePrivacy, drawn: Callable[..., np.random.Generator]) -> None:
        self._privacy, self._drawn = privacy, drawn

    @override
    def passing(self, reply: GuardedReply) -> AbstractContextManager[NoisedTensors]:
        return self._noised_tensors(reply)

    @override
    def applied_mechanism(self) -> Mechanism:
        """The noise, as whoever learns the most of one example sees it."""
        return self._privacy.of_one_example

    @contextmanager
    def _noised_tensors(self, reply: GuardedReply) -> Iterator[NoisedTensors]:
        with reply.kept() as kept:
            yield NoisedTensors(reply, kept, self._privacy, self._drawn)
