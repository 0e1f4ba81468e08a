"""One federation of real processes, whose silos reach the hub by its gateway, from its start to its end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fedsilo.api.silo_status import HubAddress
from fedsilo.hub.contact import PAUSES
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.run import AGGREGATOR, GUARD, TRAINER
from fedsilo.local.workdir import RunDirectory
from fedsilo_agent.guard.loop import OUTBOX_SECONDS
from fedsilo_agent.guard.task_source import CONFIRM_SECONDS
from tests.faults.manifests import SILOS
from tests.faults.outcome import Snapshot, snapshot
from tests.faults.proxy import Proxy
from tests.operator_fakes.served import ServedCluster
from tests.ports import free_port
from tests.recovery.hub import HubSite, lead, populate
from tests.recovery.moment import Kill
from tests.recovery.supervisor import POLL_SECONDS, Part, Supervisor

GATEWAY = "fedsilo_operator.gateway.__main__"

PATIENCE_SECONDS = 90.0 + PAUSES.longest
"""Time after which a run hangs; on an idle machine one takes some seconds, and an institution's longest pause."""

LAST_TASK_SECONDS = OUTBOX_SECONDS + CONFIRM_SECONDS + 10.0
"""Time that guards and trainers get to end after the aggregator: what a guard may wait for then, and some for the
machine."""


class Place(Protocol):
    """Where the institution runs a silo that follows the hub."""

    silo: str

    def join(self, hub: HubAddress) -> Part:
        """The silo as it is once it has enrolled; the process that follows the hub."""

    @property
    def finished(self) -> bool:
        """Whether the silo has done its part in the job."""

    def look(self, supervisor: Supervisor) -> None:
        """What others do there, again and again."""

    def show(self) -> None:
        """Put volume and logs where those of any other run are; nothing runs there any more."""


@dataclass(frozen=True)
class EndedRun:
    """How a run ended.

    :ivar left: what it has left; None where it did not come to its end.
    :ivar trouble: why it did not.
    :ivar passed: bytes between silos and hub.
    :ivar killed: how many processes were killed.
    """

    left: Snapshot | None
    trouble: str
    passed: int
    killed: int
    seconds: float


@dataclass
class Trial:
    """Runs a federation in a directory of its own.

    :param template: a run's directory, as it is before its processes start.
    :param victims: names of the processes that are killed, together.
    :ivar up_again: when the victims are started again, while they are down.
    :ivar site: what the gateway is started with.
    :param place: of a silo that follows the hub; of any other, guard and trainer are started by themselves.
    """

    server: ForkServerClient
    template: Path
    directory: Path
    victims: Sequence[str] = ()
    kills: Sequence[Kill] = ()
    place: Place | None = None
    site: HubSite = field(init=False)
    _due: float | None = None
    up_again: float | None = None
    _killed: int = 0

    def run(self) -> EndedRun:
        """Run the federation from its start to its end; no process is left behind."""
        self.directory.mkdir(parents=True)
        shutil.copytree(self.template, self.workdir.root)
        self.site = HubSite(self.directory / "gateway")
        with ServedCluster(self.directory / "kubeconfig") as cluster:
            site, port = self.site, free_port()
            proxy = Proxy(site.port)
            address = site.address(proxy.port)
            cluster.ask(lambda held: populate(held, self.workdir, SILOS, port, address))
            environment = {"KUBECONFIG": str(cluster.kubeconfig)}
            gateway = Part("gateway", GATEWAY, site.arguments(proxy.port), environment, endless=True)
            parts = [gateway, *self.parts_of(self.workdir, port, proxy.port, site.ca)]
            if self.place is not None:
                parts.append(self.place.join(address))
            supervisor = Supervisor(self.server, self.workdir.logs, parts)
            began = time.monotonic()
            try:
                trouble = self.supervise(supervisor, proxy, cluster)
            finally:
                supervisor.end()
                proxy.close()
                if self.place is not None:
                    self.place.show()
            seconds = time.monotonic() - began
        return EndedRun(
            None if trouble else snapshot(self.workdir), trouble, proxy.passed, self._killed, seconds
        )

    @property
    def workdir(self) -> RunDirectory:
        return RunDirectory(self.directory / "run")

    def parts_of(self, workdir: RunDirectory, port: int, hub: int, ca: str) -> Iterator[Part]:
        """The processes of a job, but for those of a silo that follows the hub.

        :param port: of the aggregator.
        :param hub: port at which silos see the gateway.
        :param ca: authority of the gateway's certificate.
        """
        yield _aggregator(workdir, port)
        for silo in SILOS:
            if self.place is None or silo != self.place.silo:
                lead(workdir, silo, hub, ca)
                yield from _guard_and_trainer(workdir, silo)

    def supervise(self, supervisor: Supervisor, proxy: Proxy, cluster: ServedCluster) -> str:
        """Keep everything running until the job is over, but for what is killed; why it did not come to its end."""
        kills, last = list(self.kills), None
        until = time.monotonic() + PATIENCE_SECONDS + sum(kill.down for kill in kills)
        aggregator = supervisor.parts["aggregator"]
        while time.monotonic() < until:
            supervisor.step()
            self._kill_what_is_due(supervisor, kills, proxy.passed)
            if self.place is not None:
                self.place.look(supervisor)
            self.look(cluster)
            ending = [part for part in supervisor.parts.values() if not part.endless]
            if hopeless := next((part for part in supervisor.parts.values() if part.hopeless), None):
                return f"{hopeless.name} ends again and again, see its log"
            if failed := next((part for part in ending if part.code not in (None, 0)), None):
                return f"{failed.name} ended with exit code {failed.code}, see its log"
            over = all(part.code == 0 for part in ending)
            if over and self.is_over():
                return ""
            if aggregator.code is not None and not over:
                last = last or time.monotonic() + LAST_TASK_SECONDS
                if time.monotonic() > last:
                    return "guards and trainers have not ended after the aggregator"
            time.sleep(POLL_SECONDS)
        return f"did not end within {PATIENCE_SECONDS:g} s"

    def is_over(self) -> bool:
        """Whether nothing more is to come once aggregator, guards and trainers have ended."""
        return self.place is None or self.place.finished

    def is_due(self, kill: Kill, passed: int) -> bool:
        """Whether the byte of a kill has passed."""
        return passed >= kill.passed

    def look(self, cluster: ServedCluster) -> None:
        """What a kind of trial does besides, again and again."""

    def _kill_what_is_due(self, supervisor: Supervisor, kills: list[Kill], passed: int) -> None:
        """Kill at the moments, one after the other: what is down already cannot be killed again."""
        now, victims = time.monotonic(), [supervisor.parts[name] for name in self.victims]
        if self.up_again is not None:
            if now >= self.up_again:
                self.up_again = None
                for part in victims:
                    part.down = False
        elif kills and self.is_due(kills[0], passed):
            self._due = now + kills[0].delay if self._due is None else self._due
            if now >= self._due:
                self._due, self.up_again = None, now + kills.pop(0).down
                for part in victims:
                    part.down = True
                    self._killed += supervisor.kill(part.name)


def _aggregator(workdir: RunDirectory, port: int) -> Part:
    secrets, aggregator = workdir.secrets, workdir.aggregator
    arguments = ["--config", str(aggregator / "config.json"), "--dir", str(aggregator)]
    arguments += ["--task-key", str(secrets / "task-key.pem"), "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--tls-cert", str(secrets / "server.crt"), "--tls-key", str(secrets / "server.key")]
    return Part("aggregator", AGGREGATOR, arguments)


def _guard_and_trainer(workdir: RunDirectory, silo: str) -> Iterator[Part]:
    volume = workdir.volume(silo)
    for role, program, folder in (("guard", GUARD, volume.guard), ("trainer", TRAINER, volume.root)):
        documents = ["--agent", str(folder / "agent.json"), "--silo", str(folder / "silo.json")]
        key = ["--key", str(volume.guard / "key.pem")] if role == "guard" else []
        yield Part(f"{silo}-{role}", program, [*documents, "--volume", str(volume.root), *key])
