"""What a transform does in a silo's guard, which trusts neither its trainer nor the aggregator.

A simulation asks the same sides, without what makes a silo a place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from fedsilo.methods.interface import Exchange
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.wire import Contract, SigningKey, Task, VerifyKey
from fedsilo.wire.tensors import TensorSpec

MODEL = "model"
"""The tree of a task from which a silo's change is counted."""

Tensors = Mapping[str, np.ndarray]

Pieces = Iterator[tuple[str, memoryview]]
"""Names of tensors, each with its next bytes, which are whole items and hold until the next piece is asked for."""

Messages = Mapping[str, Mapping[str, bytes]]
"""Tree of a task -> silo -> what its guard has sent."""


@dataclass(frozen=True)
class GuardIdentity:
    """What a guard that is a place of its own signs and remembers with.

    :param job: uid of the job.
    :param key: with which the silo signs.
    :param members: silo -> the key that signs for it, in the job's order.
    :param exchange_of: task -> the job's exchange that it is of.
    :param exchanges: of the job, in order.
    :param directory: that only the guard sees.
    """

    job: str
    key: SigningKey
    members: Mapping[str, VerifyKey]
    exchange_of: Callable[[Task], Exchange]
    exchanges: Sequence[Exchange]
    directory: Path


@dataclass(frozen=True)
class GuardPlace:
    """What a silo lets go of replies with.

    :param silo: its reference.
    :param drawn: purpose -> random numbers of a secret that nobody but the silo's guard reads.
    :param identity: None in a simulation.
    """

    silo: str
    drawn: Callable[..., np.random.Generator]
    identity: GuardIdentity | None = None


@dataclass(frozen=True)
class AnsweredTask:
    """The task that a reply answers.

    :param task: its name, for messages.
    """

    task: str
    step: str
    phase: str
    round: int


@dataclass(frozen=True)
class GuardedReply:
    """A reply that a silo is about to let go of.

    :param contract: what may leave of it.
    :param kept: gives a copy of its tensors that nobody else can change.
    :param model: gives a copy, which nobody else can change, of the model that the task hands out;
        raises `PolicyRefused` for none.
    """

    answered: AnsweredTask
    contract: Contract
    kept: Callable[[], AbstractContextManager[Tensors]]
    model: Callable[[], AbstractContextManager[Tensors]]


class PassingTensors(Protocol):
    """Tensors that can be read once."""

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """What they look like, by name."""

    def pieces(self) -> Pieces:
        """All of them, in any order."""


class GuardSide:
    """What a transform does in a guard; every verb does nothing by default."""

    def required_mechanisms(self, step: str, samples: int) -> tuple[Mechanism, ...]:
        """What the trainer must have had each example go through in one round of a step.

        :param samples: of the silo, as the reply has them.
        :raises PolicyRefused: when the job has no plan for so many.
        """
        return ()

    def passing(self, reply: GuardedReply) -> AbstractContextManager[PassingTensors] | None:
        """The reply's tensors as they leave; None where they leave as they are."""
        return None

    def applied_mechanism(self) -> Mechanism | None:
        """What each example has gone through once its silo's tensors have left; None where that is the plan's."""
        return None

    def require(self, reply: GuardedReply, tensor: Callable[[str], np.ndarray]) -> None:
        """Check what is about to leave.

        :param tensor: its contents, by name, which nobody can change any more.
        :raises PolicyRefused: naming the block and what is wrong with it.
        """

    def message(self, task: Task, messages: Messages) -> bytes:
        """What the guard answers to a task of the transform's own; every transform with such tasks has it.

        :raises PolicyRefused: when nothing may be answered.
        """
        raise NotImplementedError(f"{type(self).__name__} answers no task by itself")

    def replacement_vector(
        self, task: Task, messages: Messages, contract: Contract, update: Path, model: Path | None
    ) -> np.ndarray | None:
        """What leaves in place of an update; None where it leaves itself.

        :param contract: of the update.
        :param update: file of the update.
        :param model: file of the model that the task hands out, if any.
        :raises PolicyRefused: when nothing may leave.
        """
        return None

    def answered_once(self, task: Task) -> str | None:
        """Digest of what a task hands out, if no other task that hands out the same may be answered."""
        return None
