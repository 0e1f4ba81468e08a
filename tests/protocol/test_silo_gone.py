"""A link is cut for an hour, longer than a round may take: that round does without the silo, the next has it again."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from typing_extensions import override

from fedsilo.files.json_files import read_json
from tests.protocol import world as world_module
from tests.protocol.network import NOBODY
from tests.protocol.plan import Plan
from tests.protocol.specification import Outcome, require
from tests.protocol.world import World, place

pytestmark = pytest.mark.thorough

HOUR = 3600.0

DEADLINE_SECONDS = 2400
"""Deadline of a round, in seconds: the first ends within the hour, the second after it."""

METHOD = "averaging"


class CutOff(World):
    """A run in which north is cut off once its guard has put its first update on record, and linked an hour later.

    :ivar statuses: second -> the aggregator's status, every minute of the hour.
    """

    cut_at: float | None = None
    statuses: dict[float, Any]

    @override
    def take(self, step: Any, perform: Any) -> None:
        super().take(step, perform)
        if (
            self.cut_at is None
            and self.audit("north")[-1:]
            and self.audit("north")[-1]["event"] == "departure"
        ):
            self.cut_at, self.statuses = self.loop.now, {}
            self.network.cut_off("north")
            self.loop.call_later(HOUR, self.network.link, "north", context=NOBODY)
            for minute in range(1, 60):
                self.loop.call_later(60 * minute, self._look, context=NOBODY)

    def _look(self) -> None:
        assert self.cut_at is not None
        status = read_json(self.disks["aggregator"].root / "status.json")
        self.statuses[self.loop.now - self.cut_at] = status


def events(world: World, silo: str, task: str) -> list[str]:
    return [line["event"] for line in world.audit(silo) if line.get("task") == task]


def test_a_round_closes_without_it_and_the_next_one_has_it_again() -> None:
    with place() as directory, mock.patch.object(world_module, "LIMIT_SECONDS", 2 * HOUR):
        world = CutOff(Plan(METHOD, deadline=DEADLINE_SECONDS), directory)
        world.run()
        require(world)
        outcome = Outcome.of(world)
        first, second = "r00001-train-north", "r00002-train-north"
        assert events(world, "north", first) == ["departure", "not-accepted"]
        refused = next(line for line in world.audit("north") if line["event"] == "not-accepted")
        assert refused["code"] == "round-closed"
        assert events(world, "north", second) == ["departure", "acknowledged"]
    assert world.cut_at is not None
    assert outcome.model is not None
    assert list(outcome.counted["r00001-train"]) == ["r00001-train-south"]
    assert sorted(outcome.counted["r00002-train"]) == [second, "r00002-train-south"]
    assert HOUR < world.seconds - world.cut_at < HOUR + 60
    assert [process.error for process in world.processes.values()] == [None] * 5
    assert len(world.statuses) == 59
    for moment, status in world.statuses.items():
        said = {silo["name"]: (silo["state"], silo["lastRound"]) for silo in status["silos"]}
        assert status["phase"] == "Running"
        assert said["north"] == ("Awaited", 0), moment
        if abs(moment - DEADLINE_SECONDS) >= 60:
            over = moment > DEADLINE_SECONDS
            assert (status["progress"], said["south"]) == (f"{over:d}/2", ("Reported", int(over))), moment
