"""The aggregator's part in secure sums: what it hands on between silos, and the sum that comes of it.

Everything lies in trees of the state, so that an aggregator that starts again goes on where it was. A silo whose
message does not hold counts as one that has sent none, and so does one that has confirmed to have been sent what fewer
than the threshold were sent. Shares do not say by themselves whether they hold: false ones end the job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import Problem
from fedsilo.methods.interface import Assignment, Exchange
from fedsilo.methods.schedule import exchange_id, participants
from fedsilo.methods.state import State, Tree
from fedsilo.payload_kinds import SECURE_AGGREGATION
from fedsilo.secure_aggregation.aggregator_side import add_masked, agreed_broadcast, unmask
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import (
    KeyAnnouncement,
    SumContext,
    Unmasking,
    split_last_message,
    split_parts,
    verify_confirmation,
)
from fedsilo.secure_aggregation.silo_side import SEALED_BYTES
from fedsilo.transforms.secure_sum.steps import (
    AHEAD,
    ANNOUNCED,
    CONFIRMED,
    KEYS,
    MASKED,
    MESSAGE,
    PREFIX,
    SEALED,
    SHARES,
    SURVIVORS,
    UNMASK,
    next_sums,
    sum_context,
    sums_after,
)
from fedsilo.transforms.secure_sum.summed import SummedUpdates
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.wire import VerifyKey

log = logging.getLogger("fedsilo.engine")

M = TypeVar("M")

SUM = "secure.sum"
"""Tree of the sum of masked vectors, which no task hands out."""

RESPONDERS = "secure.answered"
"""Value of the state: the silos with which the sum goes on."""


@dataclass(frozen=True)
class SecureSums:
    """What the aggregator has to know of the silos.

    :param job: uid of the job.
    :param keys: silo -> the key that signs for it, in the job's order.
    :param exchanges: of the job.
    """

    job: str
    keys: Mapping[str, VerifyKey]
    exchanges: Sequence[Exchange]

    def context(self, spec: FederatedJobSpec, whole: Exchange) -> SumContext:
        """What the sum of an exchange is of."""
        silos = participants(spec, whole, tuple(self.keys))
        return sum_context(spec, self.job, exchange_id(whole), silos, self.keys)

    def step_assignments(self, step: str, silos: Sequence[str]) -> Mapping[str, Assignment]:
        """What a task of a step hands out beside what the method does."""
        if step == KEYS:
            return dict.fromkeys(silos, Assignment())
        announced = {ANNOUNCED: ANNOUNCED}
        if step == SHARES:
            return dict.fromkeys(silos, Assignment(announced))
        confirmed = {CONFIRMED: CONFIRMED} if step in (SURVIVORS, UNMASK) else {}
        return {silo: Assignment({**announced, SEALED: _sealed_for(silo), **confirmed}) for silo in silos}

    def on_messages(
        self, spec: FederatedJobSpec, state: State, exchange: Exchange, updates: RoundUpdates
    ) -> State:
        """State after any of the exchanges but the last."""
        step, context = exchange.phase.step, self.context(spec, exchange.of or exchange)
        if step == KEYS:
            return self._on_announcements(state, context, updates)
        if step == SHARES:
            return self._on_shares(state, context, updates)
        if step == SURVIVORS:
            return self._on_confirmations(state, context, updates)
        return self._on_masked_vectors(state, context, updates)

    def unmask_sum(
        self,
        spec: FederatedJobSpec,
        state: State,
        exchange: Exchange,
        updates: RoundUpdates,
        layout: Layout,
        model: Tree,
    ) -> SummedUpdates:
        """The sum, after the last exchange.

        :param model: that the silos were sent.
        :raises QuorumLost: there are too few shares, or too few silos were sent the same.
        :raises Problem: `malformed` where silos have sent shares of no secret, `out-of-range` for a sum that no silos
            can have.
        """
        assert exchange.of is not None, "the last is a step"
        context = self.context(spec, exchange.of)
        announced, sharers = _announcements(state), _sharers(state, context)
        survivors = list(state.tree(CONFIRMED))
        confirmed = {silo: row.tobytes() for silo, row in state.tree(CONFIRMED).items() if row.size}

        following = self._next_sums(spec, exchange.of)

        def unmasking(silo: str, content: bytes) -> Unmasking:
            shares, _ = split_last_message(content, silo in following)
            return Unmasking.from_bytes(shares, sharers, survivors)

        found = _valid_messages(updates, unmasking)
        total = state.tree(SUM)[MASKED].copy()
        sent = agreed_broadcast(context, survivors, confirmed)
        unmask(total, context, announced, sharers, survivors, found, sent)
        return SummedUpdates(layout, layout.decode(total, len(survivors), model))

    def begin_next(
        self, spec: FederatedJobSpec, state: State, exchange: Exchange, updates: RoundUpdates
    ) -> State:
        """State after the last exchange of a sum, with the keys that silos have sent in it for their next ones.

        Where all silos of the next sum have sent theirs, it begins with these.

        :param state: without what the sum has added.
        """
        assert exchange.of is not None, "the last is a step"
        following = self._next_sums(spec, exchange.of)
        contexts = {whole: self.context(spec, whole) for whole in set(following.values())}

        def announcement(silo: str, content: bytes) -> bytes:
            _, keys = split_last_message(content, announces=True)
            KeyAnnouncement.from_bytes(keys).verify(contexts[following[silo]], silo)
            return keys

        sent = _valid_messages(updates, announcement, following)
        ahead = {**{silo: row.tobytes() for silo, row in _ahead(state).items()}, **sent}
        later = sums_after(exchange.of, self.exchanges)
        drawn = participants(spec, later[0], tuple(self.keys)) if later else ()
        if drawn and ahead.keys() >= set(drawn):
            state = _with_announced(state, {silo: ahead.pop(silo) for silo in drawn})
        return _with_ahead(state, {silo: ahead[silo] for silo in self.keys if silo in ahead})

    def _next_sums(self, spec: FederatedJobSpec, whole: Exchange) -> Mapping[str, Exchange]:
        drawn = participants(spec, whole, tuple(self.keys))
        return next_sums(spec, whole, self.exchanges, tuple(self.keys), drawn)

    def _on_announcements(self, state: State, context: SumContext, updates: RoundUpdates) -> State:
        def announcement(silo: str, content: bytes) -> KeyAnnouncement:
            one = KeyAnnouncement.from_bytes(content)
            one.verify(context, silo)
            return one

        found = _valid_messages(updates, announcement)
        context.require_enough(found, "announced keys")
        rows = {silo: one.to_bytes() for silo, one in found.items()}
        # Who has announced keys for this sum before has announced the same ones again.
        later = {silo: row.tobytes() for silo, row in _ahead(state).items() if silo not in context.members}
        return _with_announced(_with_ahead(without_secure_sums(state), later), rows)

    def _on_shares(self, state: State, context: SumContext, updates: RoundUpdates) -> State:
        announced = list(_announcements(state))

        def sealed_shares(silo: str, content: bytes) -> dict[str, bytes]:
            others = [other for other in announced if other != silo]
            return split_parts(content, SEALED_BYTES, others, "sealed shares")

        found = _valid_messages(updates, sealed_shares)
        context.require_enough(found, "shared their secrets")
        trees = {
            _sealed_for(silo): _tree(
                {sender: given[silo] for sender, given in found.items() if sender != silo}
            )
            for silo in found
        }
        return state.with_trees(**trees).with_values(**{RESPONDERS: list(found)})

    def _on_masked_vectors(self, state: State, context: SumContext, updates: RoundUpdates) -> State:
        context.require_enough(updates.silos, "sent a vector")
        total: np.ndarray | None = None
        for silo in updates.silos:
            vector = updates.tensors(silo, SECURE_AGGREGATION)[MASKED]
            if total is None:
                total = vector
            else:
                add_masked(total, [vector])
        assert total is not None, "there are enough"
        survivors = dict.fromkeys(updates.silos, b"")
        trees: dict[str, Tree] = {SUM: {MASKED: total}, CONFIRMED: _tree(survivors)}
        return state.with_trees(**trees).with_values(**{RESPONDERS: list(survivors)})

    def _on_confirmations(self, state: State, context: SumContext, updates: RoundUpdates) -> State:
        survivors = list(state.tree(CONFIRMED))

        def confirmation(silo: str, content: bytes) -> bytes:
            verify_confirmation(context, silo, survivors, content)
            return content

        found = _valid_messages(updates, confirmation)
        context.require_enough(found, "confirmed the survivors")
        rows = {silo: found.get(silo, b"") for silo in survivors}
        return state.with_trees(**{CONFIRMED: _tree(rows)}).with_values(**{RESPONDERS: list(found)})


def without_secure_sums(state: State) -> State:
    """The state without what a sum has added; what silos have announced for later ones stays."""
    trees = {name: tree for name, tree in state.trees.items() if name == AHEAD or not name.startswith(PREFIX)}
    return State(trees, {name: value for name, value in state.values.items() if name != RESPONDERS})


def _with_announced(state: State, rows: Mapping[str, bytes]) -> State:
    """The state in which a sum begins with these announcements."""
    return state.with_trees(**{ANNOUNCED: _tree(rows)}).with_values(**{RESPONDERS: list(rows)})


def _ahead(state: State) -> Tree:
    return state.tree(AHEAD) if AHEAD in state.trees else {}


def _with_ahead(state: State, rows: Mapping[str, bytes]) -> State:
    """The state with these announcements for later sums."""
    others = {name: tree for name, tree in state.trees.items() if name != AHEAD}
    return State({**others, **({AHEAD: _tree(rows)} if rows else {})}, state.values)


def _sealed_for(silo: str) -> str:
    return f"{SEALED}/{silo}"


def _announcements(state: State) -> dict[str, KeyAnnouncement]:
    rows = state.tree(ANNOUNCED)
    return {silo: KeyAnnouncement.from_bytes(row.tobytes()) for silo, row in rows.items()}


def _sharers(state: State, context: SumContext) -> list[str]:
    return [silo for silo in context.members if _sealed_for(silo) in state.trees]


def _valid_messages(
    updates: RoundUpdates, read: Callable[[str, bytes], M], silos: Collection[str] | None = None
) -> dict[str, M]:
    """The silos' messages, without those that do not hold.

    :param silos: whose messages are read; all of them by default.
    """
    found = {}
    for silo in updates.silos if silos is None else filter(silos.__contains__, updates.silos):
        try:
            found[silo] = read(silo, updates.tensors(silo, SECURE_AGGREGATION)[MESSAGE].tobytes())
        except Problem as problem:
            log.warning("the message of %s does not count: %s", silo, problem)
    return found


def _tree(rows: Mapping[str, bytes]) -> Tree:
    return {silo: np.frombuffer(row, np.uint8) for silo, row in rows.items()}
