"""Transforms of other packages at the aggregator: models again of what silos sent in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from typing_extensions import override

from fedsilo.encodings.base import handed_out
from fedsilo.errors import MethodError
from fedsilo.methods.interface import Assignment
from fedsilo.methods.state import Tree
from fedsilo.transforms.third_party.interface import UpdateTransform
from fedsilo.transforms.third_party.passages import Passage, decoded_tensors, passages_of
from fedsilo.transforms.third_party.registry import FIELD
from fedsilo.transforms.transform import Aggregator, AggregatorSide, ReceivedExchange
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.updates.summation import FlatTensor, HeldTensor
from fedsilo.wire import Contract


class ThirdPartyAggregatorSide(AggregatorSide):
    """Updates on their way in, with whole models."""

    def __init__(self, transforms: Sequence[UpdateTransform], place: Aggregator) -> None:
        self._transforms, self._place = transforms, place

    @override
    def receive(self, received: ReceivedExchange) -> ReceivedExchange:
        """The updates with the tensors that the method reads."""
        step, tree = received.exchange.phase.step, cache(received.sent_tree)

        def asked_task(given: Assignment) -> AskedTask | None:
            plain = self._place.contract(step, given.settings).decoded
            if plain is None:
                return None
            trees = {name: tree(held) for name, held in given.trees.items()}
            return AskedTask(plain, passages_of(self._transforms, plain), trees)

        given = received.broadcast().assignments
        tasks = {
            silo: found for silo in received.updates.silos if (found := asked_task(given[silo])) is not None
        }
        if not tasks:
            return received
        return replace(received, updates=RestoredUpdates(received.updates, tasks))


@dataclass(frozen=True)
class AskedTask:
    """What a silo's task said and handed out.

    :param plain: the contract of a reply whose tensors nobody has changed.
    :param trees: by their names in the task, as the silo saw them.
    """

    plain: Contract
    passages: tuple[Passage, ...]
    trees: Mapping[str, Tree]

    @property
    def base(self) -> Tree:
        """Tensors of the model that the silo was handed.

        :raises MethodError: naming one that it was not.
        """
        found = {spec.name: handed_out(spec, self.trees) for spec in self.passages[0].model}
        base = {name: array for name, array in found.items() if array is not None}
        if absent := sorted(found.keys() - base.keys()):
            raise MethodError(
                f"{FIELD}: the task hands out no tensor {absent[0]!r} that a silo could have changed"
            )
        return base


class RestoredUpdates(RoundUpdates):
    """Updates of which models are made one at a time.

    :param updates: as they were sent.
    :param tasks: silo -> the task that it answers, where it has others sent than the model's tensors.
    """

    most_open: ClassVar[int] = 1

    def __init__(self, updates: RoundUpdates, tasks: Mapping[str, AskedTask]) -> None:
        self.silos = updates.silos
        self._updates, self._tasks = updates, tasks

    @override
    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""
        return self._updates.samples(silo)

    @override
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""
        return self._updates.metrics(silo)

    @override
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind, in the order of the method's contract."""
        sent = self._updates.names(silo, kind)
        if kind != "model" or silo not in self._tasks:
            return sent
        task = self._tasks[silo]
        made = {spec.name for spec in task.passages[0].model}
        there = made.union(sent)
        return tuple(block.name for block in task.plain.blocks if block.kind == kind and block.name in there)

    @override
    def open_tensors(self, silo: str, kind: str) -> AbstractContextManager[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name: those of a model are in memory inside the `with` block."""
        return self._held_tensors(silo) if kind == "model" else self._updates.open_tensors(silo, kind)

    @override
    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""
        found = self._updates.tensors(silo, kind)
        if kind != "model" or silo not in self._tasks:
            return found
        task = self._tasks[silo]
        whole = decoded_tensors(task.passages, found, task.base)
        return {name: whole[name] for name in self.names(silo, kind)}

    @contextmanager
    def _held_tensors(self, silo: str) -> Iterator[Mapping[str, FlatTensor]]:
        yield {name: HeldTensor(array) for name, array in self.tensors(silo, "model").items()}
