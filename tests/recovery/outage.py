"""The whole hub is gone in the middle of a round: gateway, aggregator and API server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fedsilo.silo.volume import Volume
from tests.operator_fakes.served import ServedCluster
from tests.recovery.machine import Machine
from tests.recovery.moment import Kill
from tests.recovery.trial import Trial


@dataclass
class Outage(Trial):
    """A trial in which the hub goes when the silo on a machine has its first task.

    :ivar said: what that silo said of the hub from then on, one after the other: whether it was reached.
    :ivar waiting: tasks whose signed update lay in its outbox, unacknowledged, when the hub came back.
    """

    said: list[bool] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)

    def is_due(self, kill: Kill, passed: int) -> bool:
        """The middle of a round is when the silo works on its task."""
        volume = self._volume()
        if volume is None or not volume.task.exists():
            return False
        self.said = [True]
        return True

    def is_over(self) -> bool:
        """The hub is also reached again, for which the silo asks ever less often."""
        return super().is_over() and self.said[-1]

    def look(self, cluster: ServedCluster) -> None:
        """Note what is said and kept, at every moment."""
        cluster.down = self.up_again is not None
        reached = self._machine().reached()
        if self.said and reached is not None and reached != self.said[-1]:
            self.said.append(reached)
        if cluster.down:
            self.waiting = _waiting(self._volume())

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
