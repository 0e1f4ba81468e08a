"""All parts of a silo in jobs, on this machine: what the hub asks for is decided, started, watched and ended here.

Everything that must survive is on the disk before it has an effect, so that the process may be killed at any moment and
go on with the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from fedsilo.api.conditions import AgentPhase
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import FedsiloError
from fedsilo.hub.client import HubAgent
from fedsilo.hub.mirror import is_suspended
from fedsilo.institution.directory import UID, SiloDirectory
from fedsilo.institution.part import Part, read_record
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.wire import SigningKey

log = logging.getLogger("fedsilo.silo")

IDLE_SECONDS = 60.0
"""Time without guards and trainers after which the process that they are forked from ends, for its memory."""


class Executor:
    """The parts of a silo, on file and as processes.

    :raises FileDamaged: when a record is not as it was written.
    """

    def __init__(self, directory: SiloDirectory, watched: WatchedSilo, key: SigningKey) -> None:
        self._directory, self._watched, self._key = directory, watched, key
        self._generation = 0
        self._server: ForkServerClient | None = None
        self._last_busy = time.monotonic()
        self._said: set[str] = set()
        self.parts = {part.uid: part for part in _on_file(directory)}

    @property
    def silo(self) -> Silo:
        """The Silo as it is now."""
        return self._watched.silo

    def follow(self, told: Iterable[HubAgent]) -> None:
        """Take what the hub asks for now."""
        asked = {agent.uid: agent for agent in told if self._is_sane(agent)}
        # First: whatever begins anew goes on with what an earlier part in the same job has left.
        for uid, part in self.parts.items():
            if uid not in asked and not part.gone:
                log.info("SiloAgent %s: the hub asks for it no more", part.name)
                part.hear(None)
        for uid, agent in asked.items():
            if uid not in self.parts:
                self.parts[uid] = Part(self._directory, self._record(agent))
                log.info("SiloAgent %s: the hub asks for it", agent.name)
            self.parts[uid].hear(is_suspended(agent))

    def step(self) -> None:
        """Decide, start and end whatever there is to; called often."""
        if self._watched.changed():
            self._generation += 1
        if self._server is not None:
            self._server.poll()
        clock = time.monotonic()
        # Those that are over first: another part in the same job needs what they hold.
        for part in sorted(self.parts.values(), key=lambda part: not part.gone):
            try:
                part.step(self.silo, self._generation, self._key, clock, self._fork_server)
            except FedsiloError as error:
                self._say(f"SiloAgent {part.name}: {error}")
        self._rest(clock)

    def statuses(self) -> dict[str, tuple[str, Object]]:
        """What the silo says of each part that the hub asks for: uid -> name and status."""
        return {
            uid: (part.name, dict(status_of(part.record)))
            for uid, part in self.parts.items()
            if not part.gone and part.record["status"]
        }

    def pending_since(self) -> list[str]:
        """Since when the parts that wait for a person were asked for, RFC 3339."""
        return [
            str(part.record["metadata"]["creationTimestamp"])
            for part in self.parts.values()
            if not part.gone and status_of(part.record).get("phase") == AgentPhase.APPROVAL_PENDING
        ]

    @property
    def busy(self) -> bool:
        """Whether there is a guard or trainer to look after."""
        return any(part.wants_processes for part in self.parts.values())

    def pids(self) -> dict[str, int]:
        """Process ids of all that runs."""
        found = {} if self._server is None else {"fork server": self._server.pid}
        return found | {name: pid for part in self.parts.values() for name, pid in part.pids.items()}

    def end(self) -> None:
        """End every guard and trainer, in order."""
        for part in self.parts.values():
            part.end()
        if self._server is not None:
            self._server.close()

    def _fork_server(self) -> ForkServerClient:
        if self._server is None:
            self._server = ForkServerClient(str(self._directory.root))
        return self._server

    def _rest(self, clock: float) -> None:
        if self.busy:
            self._last_busy = clock
        elif self._server is not None and clock - self._last_busy > IDLE_SECONDS:
            self._server.close()

    def _is_sane(self, agent: HubAgent) -> bool:
        """Whether the hub may ask for it: its identity names a directory here, and its name a log."""
        if UID.fullmatch(agent.uid) and UID.fullmatch(agent.name):
            return True
        self._say(
            f"the hub asks for {agent.name[:80]!r} with uid {agent.uid[:80]!r}, which name no SiloAgent"
        )
        return False

    def _record(self, agent: HubAgent) -> Object:
        metadata = {
            "name": agent.name,
            "namespace": self.silo.metadata.namespace,
            "uid": agent.uid,
            "creationTimestamp": timestamp(datetime.now(UTC)),
        }
        return {"metadata": metadata, "spec": dict(agent.spec), "status": {}}

    def _say(self, text: str) -> None:
        """Log something once."""
        if text not in self._said:
            log.error("%s", text)
            self._said.add(text)


def _on_file(directory: SiloDirectory) -> Iterator[Part]:
    for uid in directory.uids():
        record = read_record(directory, uid)
        if record is not None:
            yield Part(directory, record)
