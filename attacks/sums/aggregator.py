"""An aggregator that runs a secure sum as it likes: who takes part, is sent what, and is said to have survived."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attacks.sums.guards import Guards
from fedsilo.errors import FedsiloError
from fedsilo.secure_aggregation.aggregator_side import unmask
from fedsilo.secure_aggregation.messages import KeyAnnouncement, SumContext, Unmasking, split_parts
from fedsilo.secure_aggregation.shamir import SHARE_BYTES
from fedsilo.secure_aggregation.silo_side import SEALED_BYTES
from fedsilo.transforms.secure_sum.steps import (
    ANNOUNCED,
    CONFIRMED,
    KEYS,
    SEALED,
    SHARES,
    SURVIVORS,
    UNMASK,
    sum_context,
)
from fedsilo.wire import Tree

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """How an aggregator runs one sum.

    :param round: and `step`: of the exchange whose updates are summed.
    :param model: silo -> the model that it is sent.
    :param settings: silo -> settings of its task.
    :param asked: silos that take part; all by default.
    :param survivors: silo -> those that it is told have survived.
    :param task: how names of its tasks begin; by default, with the exchange.
    """

    round: int
    model: Callable[[str], Tree]
    step: str = "train"
    settings: Callable[[str], dict[str, Any]] = lambda _: {}
    asked: Collection[str] | None = None
    survivors: Callable[[str, Sequence[str]], Sequence[str]] = lambda _, sent: sent
    task: str = ""


@dataclass
class AggregatorView:
    """All that the aggregator has of a sum.

    :ivar sharers: silos that shared their secrets.
    :ivar masked: silo -> (n,) uint64, its vector under its masks.
    :ivar told: silo -> the survivors that it was told of.
    :ivar unmaskings: silo -> its shares for them.
    """

    context: SumContext
    announced: dict[str, KeyAnnouncement] = field(default_factory=dict)
    sharers: list[str] = field(default_factory=list)
    masked: dict[str, np.ndarray] = field(default_factory=dict)
    confirmed: dict[str, bytes] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    unmaskings: dict[str, np.ndarray] = field(default_factory=dict)

    def sums(self) -> list[np.ndarray]:
        """Everything that might be a sum without masks: of each list of survivors, by each digest that is stated."""
        found = []
        for survivors in {tuple(told) for told in self.told.values()}:
            total = np.zeros_like(next(iter(self.masked.values())))
            for silo in survivors:
                np.add(total, self.masked[silo], out=total)
            found.append(total)
            helping = {
                silo: row for silo, row in self.unmaskings.items() if self.told[silo] == list(survivors)
            }
            for sent in {row[:32] for row in self.confirmed.values()}:
                opened = total.copy()
                try:
                    read = {
                        silo: Unmasking.from_bytes(row.tobytes(), self.sharers, survivors)
                        for silo, row in helping.items()
                    }
                    unmask(opened, self.context, self.announced, self.sharers, survivors, read, sent)
                except FedsiloError:
                    continue
                found.append(opened)
        return found


async def run_sum(guards: Guards, plan: Plan) -> AggregatorView:
    """Run one sum by a plan, as far as the guards go along."""
    phase = plan.step
    name = plan.task or f"r{plan.round:05d}-{phase}"
    asked = [silo for silo in guards.silos if plan.asked is None or silo in plan.asked]
    members = {silo: key.verify_key for silo, key in guards.keys.items()}
    exchange = f"r{plan.round:05d}-{phase}"
    seen = AggregatorView(sum_context(guards.spec, guards.site.uid, exchange, guards.silos, members))

    async def step(
        kind: str, silos: Collection[str], trees: Callable[[str], dict[str, Rows]]
    ) -> dict[str, np.ndarray]:
        suffix = kind.removeprefix("secure-")

        async def ask(silo: str) -> np.ndarray | None:
            if silo not in silos:
                return None
            label = silo.rpartition("/")[2]
            return await guards.ask(
                silo, f"{name}.{suffix}-{label}", plan.round, f"{phase}.{suffix}", kind, trees(silo)
            )

        return await guards.ask_all(ask)

    keys = await step(KEYS, asked, lambda _: {})
    seen.announced = {silo: KeyAnnouncement.from_bytes(row.tobytes()) for silo, row in keys.items()}
    sealed = await step(SHARES, keys, lambda _: {ANNOUNCED: keys})
    seen.sharers = list(sealed)
    shares = {silo: _shares(silo, row, list(keys)) for silo, row in sealed.items()}

    def handed_on(silo: str) -> dict[str, Rows]:
        mine = {other: parts[silo] for other, parts in shares.items() if other != silo}
        return {ANNOUNCED: keys, SEALED: mine}

    async def mask(silo: str) -> np.ndarray | None:
        if silo not in shares:
            return None
        trees = {"model": plan.model(silo), **handed_on(silo)}
        label = silo.rpartition("/")[2]
        return await guards.ask(
            silo, f"{name}-{label}", plan.round, phase, plan.step, trees, plan.settings(silo)
        )

    seen.masked = await guards.ask_all(mask)
    if not seen.masked:
        return seen
    seen.told = {silo: list(plan.survivors(silo, list(seen.masked))) for silo in seen.masked}
    nothing = np.zeros(0, np.uint8)

    def survivors(silo: str) -> dict[str, Rows]:
        return {**handed_on(silo), CONFIRMED: dict.fromkeys(seen.told[silo], nothing)}

    confirmed = await step(SURVIVORS, seen.masked, survivors)
    seen.confirmed = {silo: row.tobytes() for silo, row in confirmed.items()}

    def opening(silo: str) -> dict[str, Rows]:
        told = seen.told[silo]
        signed = {
            other: confirmed[other] for other in told if other in confirmed and seen.told[other] == told
        }
        return {**handed_on(silo), CONFIRMED: {other: signed.get(other, nothing) for other in told}}

    last = await step(UNMASK, confirmed, opening)
    # After the shares comes the silo's announcement for the next sum.
    seen.unmaskings = {silo: row[: SHARE_BYTES * len(seen.sharers)] for silo, row in last.items()}
    return seen


def _shares(sender: str, row: np.ndarray, announced: Sequence[str]) -> dict[str, np.ndarray]:
    others = [silo for silo in announced if silo != sender]
    parts = split_parts(row.tobytes(), SEALED_BYTES, others, "sealed shares")
    return {silo: np.frombuffer(part, np.uint8) for silo, part in parts.items()}
