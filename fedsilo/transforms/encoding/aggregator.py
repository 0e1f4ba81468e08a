"""Tensor encoding at the aggregator: a broadcast in parts, and updates against what silos decoded of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec
from fedsilo.encodings.registry import encoding_of
from fedsilo.encodings.trees import decoded_tree, encoded_tree
from fedsilo.methods.interface import Assignment, Exchange
from fedsilo.methods.state import Tree
from fedsilo.transforms.encoding.decoded import DecodedUpdates, EncodedTask
from fedsilo.transforms.encoding.learned import learned_tensors
from fedsilo.transforms.encoding.names import PREFIX
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Broadcast, ReceivedExchange
from fedsilo.wire import Contract


class EncodingAggregatorSide(AggregatorSide):
    """Models as parts on their way out and in."""

    def __init__(self, spec: FederatedJobSpec, place: Aggregator) -> None:
        self._place, self._lossy = place, spec.download.is_lossy
        self._download, self._upload = encoding_of(spec.download), spec.upload.is_encoded

    @override
    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """The broadcast with the trees of whoever the exchange is of as the job has them sent."""
        if self._download is None:
            return broadcast
        trees: dict[str, Tree] = {}
        given: dict[str, Assignment] = {}
        for silo, plain in broadcast.assignments.items():
            shapes = self._learned_shapes(exchange, plain)
            for tree in plain.trees.values():
                if PREFIX + tree not in trees:
                    trees[PREFIX + tree] = encoded_tree(broadcast.state.tree(tree), shapes, self._download)
            given[silo] = replace(plain, trees={name: PREFIX + tree for name, tree in plain.trees.items()})
        return replace(broadcast, state=broadcast.state.with_trees(**trees), assignments=given)

    @override
    def receive(self, received: ReceivedExchange) -> ReceivedExchange:
        """Updates with whole tensors, and the trees that silos saw otherwise than they are."""
        exchange, broadcast = received.exchange, received.broadcast
        # A model takes time and memory: it is decoded once, where somebody asks for it.
        handed_out = cache(lambda: self._handed_out(exchange, broadcast()))
        if self._download is not None:
            received = replace(received, broadcast=lambda: _unencoded_broadcast(broadcast()))
        if self._lossy:
            received = replace(received, saw=lambda: handed_out()[0])
        if not self._upload or not self._sent_as_parts(exchange, broadcast()):
            return received
        return replace(received, updates=DecodedUpdates(received.updates, handed_out()[1]))

    def _sent_as_parts(self, exchange: Exchange, broadcast: Broadcast) -> bool:
        return any(self._contract(exchange, given).encoded for given in broadcast.assignments.values())

    def _handed_out(
        self, exchange: Exchange, broadcast: Broadcast
    ) -> tuple[Mapping[str, Tree], Mapping[str, EncodedTask]]:
        """The trees that silos were given, as they saw them, and silo -> what it answers."""
        whole: dict[str, Tree] = {}
        tasks: dict[str, EncodedTask] = {}
        for silo, given in broadcast.assignments.items():
            shapes = self._learned_shapes(exchange, given)
            plain = {name: tree.removeprefix(PREFIX) for name, tree in given.trees.items()}
            for tree in set(plain.values()) - whole.keys():
                if self._lossy and self._download:
                    found = broadcast.state.tree(PREFIX + tree)
                    whole[tree] = decoded_tree(found, shapes, self._download)
                else:  # what is only compressed on its way silos see as it was before
                    whole[tree] = broadcast.state.tree(tree)
            trees: Mapping[str, Mapping[str, np.ndarray]] = {
                name: whole[tree] for name, tree in plain.items()
            }
            tasks[silo] = EncodedTask(self._contract(exchange, given), trees)
        return whole, tasks

    def _learned_shapes(self, exchange: Exchange, given: Assignment) -> dict[str, tuple[int, ...]]:
        return learned_tensors(self._place.signature, self._contract(exchange, given))

    def _contract(self, exchange: Exchange, given: Assignment) -> Contract:
        return self._place.contract(exchange.phase.step, given.settings)


def _unencoded_broadcast(broadcast: Broadcast) -> Broadcast:
    """The broadcast as it was before it was encoded."""
    given = {
        silo: replace(each, trees={name: tree.removeprefix(PREFIX) for name, tree in each.trees.items()})
        for silo, each in broadcast.assignments.items()
    }
    return replace(broadcast, assignments=given)
