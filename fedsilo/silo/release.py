"""What leaves a silo of its trainer's reply: guard and simulation let go of one by this function alone.

The trainer runs code that the silo did not write, and its tensors may change while they are read. So they are read
once, into a copy of the silo's own, and what is checked is what leaves: that copy. Both lie in files or in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from fedsilo.encodings.check import require_decodable
from fedsilo.errors import PolicyRefused, Problem
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.policy import ReplyLimits
from fedsilo.silo.reply import (
    ReplyMetadata,
    released_blocks,
    require_enough_examples,
    require_enough_values,
    require_planned,
)
from fedsilo.transforms.training_noise.handed_out import exact_tensors, require_handed_out
from fedsilo.transforms.update_noise.clipped import UpdateNoise
from fedsilo.wire import Contract
from fedsilo.wire.tensors import TensorSpec, spec_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Tensors = Mapping[str, np.ndarray]
Pieces = Iterator[tuple[str, memoryview]]
"""Names of tensors, each with its next bytes, which are whole items and hold until the next piece is asked for."""

Plan = Callable[[int], tuple[Mechanism, ...]]
"""Samples of the silo -> the mechanisms that a reply must have gone through."""


@dataclass(frozen=True)
class ReleaseRules:
    """What a silo asks of the reply to a task, and does to it.

    :param noise: what is done to its tensors on the way, where the silo itself adds noise.
    :param compares: whether what nobody can add noise to must be as the task handed it out: the trainer adds it.
    """

    limits: ReplyLimits
    plan: Plan
    noise: UpdateNoise | None = None
    compares: bool = False


class PassingTensors(Protocol):
    """Tensors that can be read once."""

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """What they look like, by name."""

    def pieces(self) -> Pieces:
        """All of them, in any order."""


class TrainerReply(Protocol):
    """A reply as the trainer left it, and the model of its task; either may be changed by others all the time."""

    def metadata(self) -> ReplyMetadata:
        """All but the tensors."""

    def passing(self) -> AbstractContextManager[PassingTensors]:
        """The tensors, to be read once."""

    def kept(self) -> AbstractContextManager[Tensors]:
        """A copy of the tensors that nobody else can change."""

    def model(self) -> AbstractContextManager[Tensors | None]:
        """A copy of the model that the task hands out, likewise; None where it hands out none."""


@dataclass(frozen=True)
class Leaving:
    """What of a reply may leave, without the contents of its tensors.

    :param blocks: payload kinds and specs of the tensors, in the contract's order.
    """

    blocks: tuple[tuple[str, TensorSpec], ...]
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """Payload kind -> number of its `blocks`, and their `bytes`."""
        kinds: dict[str, dict[str, int]] = {}
        for kind, spec in self.blocks:
            count = kinds.setdefault(kind, {"blocks": 0, "bytes": 0})
            count["blocks"] += 1
            count["bytes"] += spec.nbytes
        return kinds


class OwnCopy(Protocol[T_co]):
    """What leaves, where only the silo writes; `fedsilo.wire.UpdateWriter` is one."""

    def write(self, name: str, piece: memoryview) -> None:
        """Take the next bytes of a tensor; raises `Problem` for what is not finite."""

    def read(self, name: str) -> np.ndarray:
        """A tensor that is complete."""

    def read_items(self, name: str, first: int, count: int) -> np.ndarray:
        """Some of its items, flat."""

    def publish(self) -> T_co:
        """Complete it: it may leave."""


NewCopy = Callable[[Leaving], AbstractContextManager[OwnCopy[T]]]
"""What makes a copy, of which nothing is left unless it is published."""


@dataclass(frozen=True)
class Release(Generic[T]):
    """What has been let go of.

    :param update: what publishing the copy has given.
    :param mechanisms: that the silo's examples went through: the plan's, or the silo's own noise.
    :param records: number of the silo's examples, or persons, from which the noise of the plan follows; None without.
    """

    leaving: Leaving
    update: T
    mechanisms: tuple[Mechanism, ...] = ()
    records: int | None = None


def release(
    task: str, contract: Contract, reply: TrainerReply, rules: ReleaseRules, new_copy: NewCopy[T]
) -> Release[T]:
    """Copy a reply piece by piece, each byte once, and let go of the copy if all of it may leave.

    :param task: its name, for messages.
    :raises PolicyRefused: naming the block and what is wrong with it.
    """
    stated = reply.metadata()
    mechanisms = rules.plan(stated.samples)
    require_planned(stated.mechanisms, mechanisms, stated.samples)
    records = stated.samples if mechanisms else None
    limits = rules.limits
    try:
        with _on_the_way(task, reply, rules.noise) as (specs, pieces):
            blocks = released_blocks(contract, specs, stated.support, limits.min_samples_per_class)
            samples, metrics = limits.samples(stated.samples), limits.metrics(stated.metrics)
            contract.check(blocks, metrics, samples)
            leaving = Leaving(tuple((block.kind, specs[block.name]) for block in blocks), samples, metrics)
            with new_copy(leaving) as own:
                for name, piece in pieces([block.name for block in blocks]):
                    own.write(name, piece)
                require_enough_values(blocks, own.read, limits.min_values_per_feature)
                require_enough_examples(
                    blocks, own.read, limits.min_samples_per_class, limits.min_samples_per_feature
                )
                require_decodable(contract, own.read_items, lambda name: specs[name].size)
                if rules.compares and (exact := exact_tensors(contract)):
                    with _model(task, reply) as given:
                        require_handed_out(exact, own.read, given)
                update = own.publish()
    except Problem as problem:
        raise PolicyRefused(f"task {task}: the trainer's reply breaks the contract: {problem}") from problem
    if rules.noise is not None:
        mechanisms = (rules.noise.privacy.of_one_example,) if blocks else ()
    return Release(leaving, update, mechanisms, records)


@contextmanager
def _on_the_way(
    task: str, reply: TrainerReply, noise: UpdateNoise | None
) -> Iterator[tuple[Mapping[str, TensorSpec], Callable[[Sequence[str]], Pieces]]]:
    """Specs of the reply's tensors, and what gives the bytes that leave of the tensors with these names."""
    if noise is None:
        with reply.passing() as passing:
            yield passing.specs, lambda _: passing.pieces()
        return
    with reply.kept() as kept:

        def noised(names: Sequence[str]) -> Pieces:
            if names:
                with _model(task, reply) as base:
                    for name, piece in noise.pieces(names, kept, base):
                        yield name, piece.data.cast("B")

        yield {name: spec_of(name, array) for name, array in kept.items()}, noised


@contextmanager
def _model(task: str, reply: TrainerReply) -> Iterator[Tensors]:
    with reply.model() as model:
        if model is None:
            raise PolicyRefused(f"task {task}: hands out no model with which the silo's could be compared")
        yield model
