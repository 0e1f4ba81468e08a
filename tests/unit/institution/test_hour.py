"""A silo that serves has no hub for an hour: it says so at every moment, goes on, and tells everything afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo.cli.main import main
from fedsilo.files.json_files import read_json
from fedsilo.hub.contact import PAUSES
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.poller import HubPoller, Membership
from fedsilo.institution import serving
from fedsilo.institution.executor import Executor
from fedsilo.institution.silo_file import WatchedSilo
from tests.hub_fakes.hub import FakeHub
from tests.operator_fakes.virtual import run
from tests.unit.institution.parts import KEY, MEMBER, NAME, SILO, UID, agent, directory

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UNREACHABLE_ERROR = Unreachable(
    "hub.example:443: no connection (timed out); let the firewall permit TCP to it"
)


class ServedInstitution:
    """`fedsilo silo serve` in virtual time, beside a hub in memory that knows the silo."""

    def __init__(self, root: Path) -> None:
        loop = asyncio.get_running_loop()
        self.now: Callable[[], datetime] = lambda: START + timedelta(seconds=loop.time())
        self.hub = FakeHub(SILO, registered=(KEY.verify_key, "used"), accepted=KEY.verify_key, version=8)
        self.place = directory(root, {"manualApproval": True})
        watched = WatchedSilo(self.place, MEMBER, KEY.verify_key.to_text())
        self.executor = Executor(self.place, watched, KEY)
        served = serving.ServedSilo(self.place, self.executor, watched, KEY, self.place.read_heard())
        me = Membership(KEY.verify_key.fingerprint, None, "0.1.0")
        following = HubPoller(self.hub.requests_of(KEY), served, me, Mirror(SILO, 7), self.now)
        served.following = following
        self.tasks = [asyncio.ensure_future(following.run()), asyncio.ensure_future(served.work())]

    @property
    def contact(self) -> Object:
        """What it leaves for `fedsilo silo status`."""
        shown = read_json(self.place.serving)
        assert shown is not None
        found: Object = shown["hub"]
        return found

    def reported_phase(self) -> str:
        return str(self.hub.statuses.get(NAME, {}).get("phase"))

    async def wait_until(self, what: Callable[[], bool]) -> None:
        for _ in range(300):
            if what():
                return
            await asyncio.sleep(1)
        raise AssertionError("waited in vain")

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.executor.end()


def test_an_hour_without_a_hub_is_said_at_every_moment_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IDLE_SECONDS", 10.0)

    async def hour() -> None:
        here = ServedInstitution(tmp_path / "silo")
        hub, place = here.hub, here.place
        hub.put(agent())
        await here.wait_until(lambda: here.reported_phase() == "ApprovalPending")
        assert here.contact["reached"]

        hub.away, gone = UNREACHABLE_ERROR, here.now()
        hub.news()
        await here.wait_until(lambda: not here.contact["reached"])
        first = here.contact
        assert gone <= datetime.fromisoformat(first["since"]) <= gone + timedelta(seconds=60)
        assert datetime.fromisoformat(first["heard"]) <= gone
        asked = len(hub.requests)
        for minute in range(60):
            if minute == 30:
                assert main(["silo", "refuse", NAME, "--yes", "--dir", str(place.root)]) == 0
            await asyncio.sleep(60)
            assert here.contact == first, "since when, when it answered last, and why"
            assert here.executor.statuses()[UID][1]["phase"] == (
                "Refused" if minute >= 30 else "ApprovalPending"
            )
        assert "let the firewall permit" in first["message"]
        assert 3600 / PAUSES.longest <= len(hub.requests) - asked <= 2 * 3600 / PAUSES.longest + 10
        assert here.reported_phase() == "ApprovalPending"

        hub.away, back = None, here.now()
        await here.wait_until(lambda: here.reported_phase() == "Refused")
        assert here.now() - back <= timedelta(seconds=PAUSES.longest + 10)
        assert here.contact["reached"]
        assert here.contact["since"] >= timestamp(back)
        await here.end()

    run(hour())
