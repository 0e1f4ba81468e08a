"""The whole hub is gone in the middle of a round: gateway, aggregator and API server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from typing_extensions import override

from fedsilo.api.conditions import ConditionType
from fedsilo.silo.volume import Volume
from fedsilo_operator.objects import SILO_KIND, Ref
from fedsilo_operator.silo import remote
from tests.operator_fakes.served import ServedCluster
from tests.recovery.machine import Machine
from tests.recovery.moment import Kill
from tests.recovery.trial import Trial

SAMPLE_SECONDS = 30.0
"""Time between two looks at what both sides say in words."""

LONGEST_SECONDS = 120.0
"""Time after which a hub comes back also where nothing has been signed meanwhile."""


@dataclass(frozen=True)
class OutageSample:
    """What there is to read at a moment of an outage.

    :param second: since the hub went.
    :param institution: what `fedsilo silo status` says of the hub.
    :param hub: what the hub's silo controller concludes from the objects that its API server holds.
    :param waiting: tasks whose signed update waits for the hub.
    """

    second: float
    institution: str
    hub: str
    waiting: frozenset[str]

    @override
    def __str__(self) -> str:
        kept = ", ".join(sorted(self.waiting)) or "nothing"
        return f"{self.second:4.0f} s  institution: {self.institution}\n        hub: {self.hub}\n        kept: {kept}"


@dataclass
class Outage(Trial):
    """A trial in which the hub goes when the silo on a machine has its first task.

    :ivar said: what that silo said of the hub from then on, one after the other: whether it was reached.
    :ivar note: called with each sample.
    :ivar waiting: tasks whose signed update lay in its outbox, unacknowledged, when the hub came back.
    """

    said: list[bool] = field(default_factory=list)
    note: Callable[[OutageSample], None] = lambda _: None
    waiting: set[str] = field(default_factory=set)
    _gone: float | None = None
    _sampled: float = float("-inf")

    @override
    def is_due(self, kill: Kill, passed: int) -> bool:
        """The middle of a round is when the silo works on its task."""
        volume = self._volume()
        if volume is None or not volume.task.exists():
            return False
        self.said = [True]
        return True

    @override
    def is_over(self) -> bool:
        """The hub is also reached again, for which the silo asks ever less often."""
        return super().is_over() and self.said[-1]

    @override
    def look(self, cluster: ServedCluster) -> None:
        """Note what is said and kept, at every moment."""
        cluster.down = self.up_again is not None
        reached = self._machine().reached()
        if self.said and reached is not None and reached != self.said[-1]:
            self.said.append(reached)
        if cluster.down:
            self.waiting = _waiting(self._volume())
        if self._gone is None and cluster.down:
            self._gone = time.monotonic()
        if self.up_again is not None and self._gone is not None and not self.waiting:
            # However slow the silo is, it has signed an update before the hub comes back.
            self.up_again = max(self.up_again, min(time.monotonic() + 1, self._gone + LONGEST_SECONDS))
        if self._gone is not None and time.monotonic() >= self._sampled + SAMPLE_SECONDS:
            self._sampled = time.monotonic()
            self.note(self._sample(cluster, self._sampled - self._gone))

    def _sample(self, cluster: ServedCluster, second: float) -> OutageSample:
        directory = self._machine().directory
        command = [sys.executable, "-m", "fedsilo.cli.main", "silo", "status", "--dir", str(directory.root)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        institution = next(line for line in said.splitlines() if line.startswith("the hub "))
        silo = Ref(*directory.require_membership().silo.split("/"))
        observed = cluster.ask(lambda held: held.peek(SILO_KIND, silo))
        status = remote.reconcile(observed, (), datetime.now(UTC)).status or {}
        found = [one for one in status.get("conditions", ()) if one["type"] == ConditionType.CONNECTED]
        hub = "".join(f"Connected {one['status']}, {one['reason']}: {one['message']}" for one in found)
        return OutageSample(second, institution, hub, frozenset(_waiting(self._volume())))

    def _machine(self) -> Machine:
        assert isinstance(self.place, Machine)
        return self.place

    def _volume(self) -> Volume | None:
        found = list(self._machine().directory.agents.glob("*/volume"))
        return Volume(found[0]) if found else None


def _waiting(volume: Volume | None) -> set[str]:
    log = volume.audit / "log.jsonl" if volume is not None else None
    if volume is None or log is None or not log.exists():
        return set()
    lines = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    acknowledged = {line["task"] for line in lines if line["event"] == "acknowledged"}
    departed = {line["task"] for line in lines if line["event"] == "departure"}
    return (departed - acknowledged) & {path.stem for path in volume.outbox.glob("*.update")}
