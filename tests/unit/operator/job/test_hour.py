"""An institution is gone for an hour in the middle of a job: every minute the hub says so, and then it goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fedsilo.api.observed import Object, condition
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo_operator.gateway.hub import Hub, HubIdentity
from fedsilo_operator.objects import SILO_KIND
from fedsilo_operator.runtime.executor import carry_out
from fedsilo_operator.silo import remote
from tests.unit.operator.job.harness import JobHarness, View, at_once
from tests.unit.operator.job.objects import EAST, KEYS, NORTH, SOUTH, silo
from tests.unit.operator.job.test_remote import remote_silo as remote_silo

HOUR = 60
"""Minutes of an hour."""

MISSED_MINUTES = 5
"""In minutes, without a word of it."""


class HubOfAJob:
    """Silo controller, job controller and gateway of a hub on whose job north and south work; south is remote."""

    def __init__(self) -> None:
        self.job = JobHarness(None, [silo(NORTH), remote_silo()])
        identity = HubIdentity(KEYS[EAST], "https://hub.example")
        cluster = self.job.cluster
        cache: Any = View(cluster)
        self.gateway = Hub(cluster, cache, identity, lambda: 1, lambda: self.job.now)
        self.hear()
        self.job.running()

    def hear(self) -> None:
        """South asks the gateway, and its Silo says so."""
        at_once(self.gateway.record_contact(SOUTH))
        self.look()

    def look(self) -> None:
        """The silo controller looks at south."""
        plan = lambda rejections: remote.reconcile(self.silo, rejections, self.job.now)  # noqa: E731
        at_once(carry_out(plan, self.silo, self.job.cluster))

    @property
    def silo(self) -> Object:
        return self.job.cluster.peek(SILO_KIND, SOUTH)

    @property
    def connected_condition(self) -> Object:
        found = condition(self.silo, "Connected")
        assert found is not None
        return dict(found)

    def pass_a_minute(self) -> None:
        self.job.now += timedelta(minutes=1)
        self.look()
        self.job.settle()


def test_every_minute_of_an_hour_silo_and_job_say_that_it_is_gone_and_since_when() -> None:
    hub = HubOfAJob()
    since = hub.silo["status"]["lastSeen"]
    writes = 0
    for minute in range(1, HOUR + 1):
        before = len(hub.job.cluster.writes)
        hub.pass_a_minute()
        writes += len(hub.job.cluster.writes) - before
        gone = minute >= MISSED_MINUTES
        assert hub.connected_condition["status"] == ("False" if gone else "True")
        status, reason, message = hub.job.condition("SilosReady") or ("", "", "")
        assert hub.job.phase() == "Running"
        if gone:
            assert f"Nothing was heard of the institution since {since}" in hub.connected_condition["message"]
            assert (status, reason) == ("False", "NotSeen")
            assert message.startswith(f"Silo {SOUTH}: Nothing was heard of the institution since {since}")
        else:
            assert status == "True"
    assert writes < 10, "an hour in which nothing changes costs no writes"
    missed = parse_timestamp(hub.connected_condition["lastTransitionTime"]) - parse_timestamp(since)
    assert missed < remote.NOT_SEEN + timedelta(minutes=1)

    back = timestamp(hub.job.now)
    hub.hear()
    hub.job.settle()
    assert hub.silo["status"]["lastSeen"] == back
    assert (hub.connected_condition["status"], hub.connected_condition["reason"]) == ("True", "Seen")
    assert (hub.job.condition("SilosReady") or ("",))[0] == "True"
    assert hub.job.phase() == "Running"
    assert ("Warning", "NotSeen") in hub.job.events()
