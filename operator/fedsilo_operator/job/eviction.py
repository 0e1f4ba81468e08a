"""Which part of a job a drain may move: one at a time, and the next when the one before runs again.

A PodDisruptionBudget counts pods of its own namespace, and the agents of a job are in one namespace each. So each part
has a budget of its own, which the operator keeps closed. It opens one where a node is drained, and none else until that
part runs elsewhere. No drain hangs: what finds no place is waited for as long as `spec.startDeadline`, and a part that
nobody evicts gives its turn to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo_operator.objects import DISRUPTION_BUDGET, Ref, is_deleted, owns, ref_of, satisfies
from fedsilo_operator.plan import Action, ApplyAction, DeleteAction
from fedsilo_operator.workloads.disruption import disruption_budget

TURN = timedelta(seconds=60)
"""How long a part whose node is drained has its turn while nobody evicts it: whoever drains asks every few seconds."""

OPENED_TIME = "fedsilo.io/opened-time"
"""Annotation of a budget: when it was opened last."""

LOOK_SECONDS = 5.0
"""How often a job on a drained node is looked at: no watch of jobs reports when the last pod has left it."""


@dataclass(frozen=True)
class EvictionUnit:
    """What a drain moves as one: the aggregator, or guard and trainer of a silo, which share a node.

    :param ref: namespace and name of its budget.
    :param owner: with which its budget is deleted.
    :param pods: how many it has while it runs.
    :param budget: as observed, if there is one.
    :param drained: whether a pod of it, even one that is about to end, is on a node that is drained.
    :param leaving: whether a pod of it is about to end.
    :param missing_since: since when it does not run; None while it does.
    """

    ref: Ref
    owner: Object
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    pods: int
    budget: Object | None = None
    drained: bool = False
    leaving: bool = False
    missing_since: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether its budget lets all its pods be evicted."""
        return self.budget is not None and self.budget["spec"].get("minAvailable") == 0

    @property
    def opened_time(self) -> datetime | None:
        """When its budget was opened last; None where it never was, or where that cannot be read."""
        written = self._opened_text
        try:
            return None if written is None else parse_timestamp(written)
        except ValueError:
            return None

    @property
    def _opened_text(self) -> str | None:
        annotations = {} if self.budget is None else self.budget["metadata"].get("annotations") or {}
        return annotations.get(OPENED_TIME)

    def is_moving(self, now: datetime, patience: timedelta) -> bool:
        """Whether nothing else of its job may be evicted yet.

        An eviction is in the budget before it is in any pod, and the API server refuses those that come before the
        disruption controller has seen a budget's change: so a closed budget says itself whether all is done.
        """
        if self.is_open or self._has_evictions():
            return True
        if self.missing_since is None:
            return self.leaving
        return now < self.missing_since + patience

    def _has_evictions(self) -> bool:
        """Whether a closed budget may still let an eviction through, or has one that no pod shows yet."""
        if self.budget is None:
            return False
        status = status_of(self.budget)
        seen = status.get("observedGeneration") == self.budget["metadata"].get("generation")
        return not seen or bool(status.get("disruptedPods"))

    def turn_is_over(self, now: datetime, patience: timedelta) -> bool:
        """Whether its budget was open for long enough, as nobody evicts it or its eviction does not end."""
        undisturbed = self.missing_since is None and not self.leaving
        since = self.opened_time
        return since is None or now >= since + (TURN if undisturbed else patience)

    def budget_object(self, is_open: bool, now: datetime) -> Object:
        """Its budget as it should be."""
        pods = 0 if is_open else self.pods
        made = disruption_budget(self.ref, self.labels, self.selector, pods, owner=self.owner)
        opened = timestamp(now) if is_open and not self.is_open else self._opened_text
        notes = {} if opened is None else {"annotations": {OPENED_TIME: opened}}
        return made | {"metadata": made["metadata"] | notes}


def evictable_unit(units: Sequence[EvictionUnit], now: datetime, patience: timedelta) -> EvictionUnit | None:
    """The one part that may be evicted now; None while nothing is drained, or another part is on its way."""
    drained = [unit for unit in units if unit.drained]
    opened = [unit for unit in units if unit.is_open]
    if opened:
        keeps = opened[0].drained and (len(drained) == 1 or not opened[0].turn_is_over(now, patience))
        return opened[0] if keeps else None
    for unit in sorted(drained, key=_turn):
        if not any(other.is_moving(now, patience) for other in units if other is not unit):
            return unit
    return None


def _turn(unit: EvictionUnit) -> tuple[float, Ref]:
    """Sorts first whose last turn is longest ago."""
    return (0.0 if unit.opened_time is None else unit.opened_time.timestamp()), unit.ref


def budget_actions(
    units: Sequence[EvictionUnit], budgets: Sequence[Object], now: datetime, patience: timedelta
) -> Iterator[Action]:
    """Actions that make the budgets of a job those of its parts, and none besides.

    :param units: none while the job need not run.
    :param budgets: all that the job has.
    :param patience: how long a part that does not run holds up the others.
    """
    chosen = evictable_unit(units, now, patience)
    for unit in units:
        yield from _put(unit, unit.budget_object(unit is chosen, now))
    wanted = {unit.ref for unit in units}
    yield from deletion_actions([budget for budget in budgets if ref_of(budget) not in wanted])


def deletion_actions(budgets: Sequence[Object]) -> Iterator[Action]:
    """Actions that delete budgets: of what need not stay, nobody has to ask."""
    for budget in budgets:
        if not is_deleted(budget):
            ref = ref_of(budget)
            yield DeleteAction(DISRUPTION_BUDGET, ref, uid_of(budget), failure_group=f"budget {ref}")


def _put(unit: EvictionUnit, wanted: Object) -> Iterator[Action]:
    """Make the budget as it is wanted; one that an earlier agent of this name has left is deleted first."""
    group = f"budget {unit.ref}"
    if unit.budget is None:
        yield ApplyAction(wanted, failure_group=group)
    elif not owns(unit.owner, unit.budget):
        yield from deletion_actions([unit.budget])
    elif not is_deleted(unit.budget) and not satisfies(unit.budget, wanted):
        known = wanted["metadata"] | {"uid": uid_of(unit.budget)}
        yield ApplyAction(wanted | {"metadata": known}, failure_group=group)


def look_again_seconds(units: Sequence[EvictionUnit]) -> float | None:
    """Seconds after which to look at the parts of a job again; None where nothing of it is drained."""
    return LOOK_SECONDS if any(unit.drained for unit in units) else None
