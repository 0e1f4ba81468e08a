"""An aggregator, a gateway and silos, as real processes over real HTTPS, and what a transfer costs each of them."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import JOB, Aggregator, Silo, aggregator, job
from fedsilo.api.observed import Object
from fedsilo.wire import SigningKey, Task, open_task, task_digest
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient
from tests.integration.gateway.process import GatewayProcess, accepted_silo, gateway, silo_agent

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """Seconds and CPU seconds of one transfer.

    :param cpu: seconds of aggregator, silo and gateway.
    """

    seconds: float
    cpu: tuple[float, float, float]


@dataclass
class Scene:
    """Processes and silos of one measurement.

    :ivar tasks: task and digest of the sealed task, by silo.
    """

    folder: Path
    silos: list[Silo]
    aggregator: Aggregator
    gateway: GatewayProcess
    tasks: dict[str, tuple[Task, bytes]] = field(default_factory=dict)

    def peer(self, silo: Silo, through: bool) -> AggregatorAddress:
        """The aggregator as this silo reaches it, directly or through the gateway."""
        url, ca = (
            (self.gateway.url, self.gateway.ca) if through else (self.aggregator.url, self.aggregator.ca)
        )
        return AggregatorAddress(url, ca, JOB, silo.reference, silo.key)

    async def task(self, silo: Silo, client: AggregatorClient) -> tuple[Task, bytes]:
        """The silo's task, which stays the same."""
        if silo.name not in self.tasks:
            sealed = await client.task("", wait=25)
            assert sealed is not None
            self.tasks[silo.name] = open_task(sealed, self.aggregator.task_key), task_digest(sealed)
        return self.tasks[silo.name]

    async def measure(self, transfer: Awaitable[None]) -> Figure:
        """How long a transfer takes, and what it costs each process."""
        before, began = self._processor(), time.monotonic()
        await transfer
        seconds = time.monotonic() - began
        aggregated, own, passed = (
            after - earlier for after, earlier in zip(self._processor(), before, strict=True)
        )
        return Figure(seconds, (aggregated, own, passed))

    def _processor(self) -> tuple[float, float, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return (
            _processor(self.aggregator.process.pid),
            own.ru_utime + own.ru_stime,
            _processor(self.gateway.process.pid),
        )


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def scene(transferring: int, polling: int) -> Iterator[Scene]:
    """An aggregator, and a gateway that knows so many silos of which the first ones have a part in its job."""
    with tempfile.TemporaryDirectory(prefix="fedsilo-gateway-") as name:
        silos = []
        for number in range(max(transferring, polling)):
            (Path(name) / f"s{number}").mkdir()
            silos.append(Silo(f"s{number}", SigningKey.generate(), Path(name) / f"s{number}"))
        manifest = job(transferring, rounds=1, scored=False)
        with aggregator(Path(name), manifest, silos[:transferring]) as served:
            objects = [accepted_silo(silo.reference, silo.key) for silo in silos]
            objects += [agent(silo, served) for silo in silos]
            limits = {"open_requests": 8, "requests_per_second": 1000, "burst": 1000}
            with gateway(Path(name) / "gateway", objects, limits) as running:
                yield Scene(Path(name), silos, served, running)
            served.process.kill()


def agent(silo: Silo, served: Aggregator, *, suspend: bool = False) -> Object:
    """The part that a silo has in the job."""
    return silo_agent(silo.reference, silo.key, JOB, served.url, served.ca, suspend=suspend)
