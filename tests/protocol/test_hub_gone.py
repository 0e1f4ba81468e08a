"""The hub is gone for an hour in the middle of a round: nothing is lost, and all goes on by itself."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest

from tests.protocol import world as world_module
from tests.protocol.network import NOBODY
from tests.protocol.plan import SILOS, Crash, Plan
from tests.protocol.specification import require, run
from tests.protocol.world import World, place

pytestmark = pytest.mark.thorough

HOUR = 3600.0

METHOD = "phases"

WITHIN_AN_UPDATE, AFTER_AN_UPDATE = 32, 36
"""Durable steps of the aggregator: a part of the first update of a round is there, and all of it."""


@dataclass(frozen=True)
class KeptState:
    """What a silo has in the middle of the hour.

    :param departed: digests on record, by task.
    :param outbox: signed updates that wait.
    :param open: tasks on record that nobody has acknowledged.
    """

    departed: dict[str, str]
    outbox: frozenset[str]
    open: frozenset[str]


def kept_state(world: World, silo: str) -> KeptState:
    lines = world.audit(silo)
    departed = {line["task"]: line["digest"] for line in lines if line["event"] == "departure"}
    acknowledged = {line["task"] for line in lines if line["event"] == "acknowledged"}
    outbox = {path.stem for path in (world.disks[silo].root / "guard" / "outbox").glob("*.update")}
    return KeptState(departed, frozenset(outbox), frozenset(departed.keys() - acknowledged))


@pytest.mark.parametrize("step", [WITHIN_AN_UPDATE, AFTER_AN_UPDATE])
def test_an_hour_costs_nothing_but_that_hour(step: int) -> None:
    """The model is the one of an undisturbed run (`require`), and what leaves is what was signed before the hour."""
    undisturbed = run(Plan(METHOD))
    then: dict[str, KeptState] = {}
    with place() as directory, mock.patch.object(world_module, "LIMIT_SECONDS", 2 * HOUR):
        world = World(Plan(METHOD, faults=(Crash("aggregator", step, down=HOUR),)), directory)
        look = lambda: then.update({silo: kept_state(world, silo) for silo in SILOS})  # noqa: E731
        world.loop.call_later(HOUR / 2, look, context=NOBODY)
        world.run()
        require(world)
        at_the_end = {silo: kept_state(world, silo) for silo in SILOS}
    assert HOUR < world.seconds < HOUR + undisturbed.seconds + 60
    assert [process.error for process in world.processes.values()] == [None] * 5
    accepted = {acceptance.task: acceptance.digest for acceptance in world.seen.accepted}
    for silo in SILOS:
        (waiting,) = then[silo].open
        assert waiting in then[silo].outbox, "it is kept as it was signed"
        assert accepted[waiting] == then[silo].departed[waiting]
        assert at_the_end[silo].departed.items() >= then[silo].departed.items()
        assert not at_the_end[silo].open
