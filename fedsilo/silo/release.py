"""What leaves a silo of its trainer's reply: guard and simulation let go of one by this function alone.

The trainer runs code that the silo did not write, and its tensors may change while they are read. So they are read
once, into a copy of the silo's own, and what is checked is what leaves: that copy. Both lie in files or in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np

from fedsilo.encodings.check import require_decodable
from fedsilo.errors import PolicyRefused, Problem
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.reply import (
    ReplyMetadata,
    released_blocks,
    require_enough_examples,
    require_enough_values,
    require_planned,
)
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.transforms.guard import AnsweredTask, GuardedReply, GuardSide, PassingTensors, Tensors
from fedsilo.wire import Contract
from fedsilo.wire.tensors import TensorSpec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class ReleaseRules:
    """What a silo asks of the reply to a task, and does to it.

    :param sides: of the job's transforms, from the method outward.
    :param require_records: raises `PolicyRefused` where the noise of a plan follows from another number of examples,
        or persons, than before.
    """

    limits: ReplyLimits
    sides: Sequence[GuardSide] = ()
    require_records: Callable[[int], None] = lambda _: None


class TrainerReply(Protocol):
    """A reply as the trainer left it, and the model of its task; either may be changed by others all the time."""

    def metadata(self) -> ReplyMetadata:
        """All but the tensors."""

    def passing(self) -> AbstractContextManager[PassingTensors]:
        """The tensors, to be read once."""

    def kept_tensors(self) -> AbstractContextManager[Tensors]:
        """A copy of the tensors that nobody else can change."""

    def model(self) -> AbstractContextManager[Tensors | None]:
        """The model that the silo was handed with the task, not the one it trained; None where it was handed none.

        Nobody else can change it.
        """


@dataclass(frozen=True)
class EgressSummary:
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
        """Complete the copy, so that it may leave."""


NewCopy = Callable[[EgressSummary], AbstractContextManager[OwnCopy[T]]]
"""What makes a copy, of which nothing is left unless it is published."""


@dataclass(frozen=True)
class Release(Generic[T]):
    """What has been let go of.

    :param update: what publishing the copy has given.
    :param mechanisms: that the silo's examples went through: the plan's, or the silo's own noise.
    :param records: number of the silo's examples, or persons, from which the noise of the plan follows; None without.
    """

    leaving: EgressSummary
    update: T
    mechanisms: tuple[Mechanism, ...] = ()
    records: int | None = None


def release(
    answered: AnsweredTask, contract: Contract, reply: TrainerReply, rules: ReleaseRules, new_copy: NewCopy[T]
) -> Release[T]:
    """Copy a reply piece by piece, each byte once, and let go of the copy if all of it may leave.

    :raises PolicyRefused: naming the block and what is wrong with it.
    """
    task, stated = answered.task, reply.metadata()
    mechanisms = _required_mechanisms(answered.step, stated, rules)
    records = stated.samples if mechanisms else None
    limits = rules.limits
    guarded = GuardedReply(answered, contract, reply.kept_tensors, partial(_model, task, reply))
    altered = (found for side in rules.sides if (found := side.passing(guarded)) is not None)
    try:
        with next(altered, None) or reply.passing() as passing:
            specs = passing.specs
            blocks = released_blocks(contract, specs, stated.support, limits.min_samples_per_class)
            samples = limits.samples(stated.samples)
            metrics = limits.metrics(stated.metrics, stated.samples, contract.metrics)
            contract.check(blocks, metrics, samples)
            leaving = EgressSummary(
                tuple((block.kind, specs[block.name]) for block in blocks), samples, metrics
            )
            with new_copy(leaving) as own:
                for name, piece in passing.pieces():
                    own.write(name, piece)
                require_enough_values(
                    blocks, own.read, limits.min_values_per_feature, limits.min_values_per_part
                )
                require_enough_examples(
                    blocks, own.read, limits.min_samples_per_class, limits.min_samples_per_feature
                )
                require_decodable(contract, own.read_items, lambda name: specs[name].size)
                for side in rules.sides:
                    side.require(guarded, own.read)
                update = own.publish()
    except Problem as problem:
        raise PolicyRefused(f"task {task}: the trainer's reply breaks the contract: {problem}") from problem
    undergone = tuple(filter(None, (side.applied_mechanism() for side in rules.sides)))
    if undergone:
        mechanisms = undergone if blocks else ()
    return Release(leaving, update, mechanisms, records)


def _required_mechanisms(step: str, stated: ReplyMetadata, rules: ReleaseRules) -> tuple[Mechanism, ...]:
    """The mechanisms that a reply has gone through by the job's plan.

    :raises PolicyRefused: when it states others, or the plan is for another number of examples.
    """
    planned = tuple(each for side in rules.sides for each in side.required_mechanisms(step, stated.samples))
    if planned:
        rules.require_records(stated.samples)
    require_planned(stated.mechanisms, planned, stated.samples)
    return planned


@contextmanager
def _model(task: str, reply: TrainerReply) -> Iterator[Tensors]:
    with reply.model() as model:
        if model is None:
            raise PolicyRefused(f"task {task}: hands out no model with which the silo's could be compared")
        yield model
