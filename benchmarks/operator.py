"""The operator under load: 200 jobs with 10 silos each against a real API server.

    python -m benchmarks.operator

The operator is the real process under its own account; API server, etcd and the controllers that make pods of Jobs are
real, kubelets and aggregators are stand-ins (`benchmarks.federations`). The operator is scraped every 15 s, and its
dashboard is open. All of them share the machine's cores.

The phases: all jobs are applied at once and go on until all run. In steady state each aggregator reports an answer of
a silo every 5 s, as in rounds of 50 s. Then the reports stop, the operator is started again, reconciles everything and
must write nothing. At last all jobs complete at once.

Figures of a reconcile are those of both controllers together: how long it took, requests included, and how long the
object had waited for a worker. They, the requests, and how late the event loop got to what was due are read from the
operator's log at level DEBUG. CPU seconds are those of each process, the operator's with the writing of that log.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.federations import HUB, Aggregators, Kubelet, jobs, silos
from benchmarks.operator_process import Process, Span, operator
from benchmarks.watchers import watching
from fedsilo.api.observed import Object, holds
from fedsilo_operator.cluster.api_server import ApiServer
from fedsilo_operator.cluster.connection import connect
from fedsilo_operator.objects import FEDERATED_JOB, SILO_AGENT, SILO_KIND, Kind
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.reflector import Reflector
from fedsilo_operator.runtime.store import Store
from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl
from hack.operator import NAMESPACE
from hack.paths import ROOT

REPORT_SECONDS = 5.0
"""Between two reports of a job."""

MAX_PHASE_SECONDS = 3600.0
"""Longest duration of a phase."""

MB = 1e6

_SERVED_METRIC = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")


@dataclass
class LoadTest:
    """One load test of the operator against an API server.

    :param surroundings: name of the API server.
    :param figures: by name, in the order of the table.
    """

    kubectl: Kubectl
    surroundings: str
    folder: Path
    jobs: int
    silos: int
    seconds: float
    figures: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """From the first silo to the last model."""
        account = self._account()
        async with self._surroundings() as (cluster, store, aggregators):
            with operator(account, self.folder / "first.log", self.surroundings) as process:
                await wait_until(process.ready, "the operator")
                self._record("RSS idle, MB", _megabytes(process.memory("VmRSS")))
                async with watching(process.port, process.dashboard):
                    await self._silos(cluster, store, process)
                    await self._creation(cluster, store, process)
                    await self._measure_steady_state(process, aggregators)
            aggregators.silent = True
            with operator(account, self.folder / "second.log", self.surroundings) as process:
                async with watching(process.port, process.dashboard):
                    await self._measure_restart(process)
                    await self._completion(process, store, aggregators)

    def _account(self) -> Path:
        """A kubeconfig with nothing but a token of the operator's account."""
        content = yaml.safe_load(self.kubectl.kubeconfig.read_text())
        token = self.kubectl.run("create", "token", "fedsilo-operator", "-n", NAMESPACE, "--duration=12h")
        content["users"][0]["user"] = {"token": token.strip()}
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    @asynccontextmanager
    async def _surroundings(self) -> AsyncIterator[tuple[ApiServer, Store, Aggregators]]:
        os.environ["KUBECONFIG"] = str(self.kubectl.kubeconfig)
        connection = await connect()
        cluster, store = ApiServer(connection), Store()
        aggregators = Aggregators(cluster, store, REPORT_SECONDS)
        runtime = Operator(cluster, store, [Kubelet(connection, store), aggregators], workers=8)
        others = [Reflector(cluster, kind, "", store.indexer(kind, "")) for kind in (SILO_AGENT, SILO_KIND)]
        tasks = [
            asyncio.ensure_future(runtime.run()),
            *(asyncio.ensure_future(each.run()) for each in others),
        ]
        try:
            yield cluster, store, aggregators
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()

    async def _silos(self, cluster: ApiServer, store: Store, process: Process) -> None:
        made = silos(self.silos)
        for name in (HUB, *(silo["metadata"]["namespace"] for silo in made)):
            self.kubectl.run("create", "namespace", name)
        for silo in made:
            await cluster.apply(silo, manager="kubectl")
        await wait_until(
            lambda: _count(store, SILO_KIND, _holds("Ready")) == self.silos, "the silos' keys", process
        )

    async def _creation(self, cluster: ApiServer, store: Store, process: Process) -> None:
        mark = process.mark()
        began = time.monotonic()
        turn = asyncio.Semaphore(8)

        async def apply(job: Object) -> None:
            async with turn:
                await cluster.apply(job, manager="kubectl")

        await asyncio.gather(*map(apply, jobs(self.jobs, silos(self.silos))))
        applied = time.monotonic() - began
        agents = self.jobs * self.silos
        await wait_until(
            lambda: _count(store, SILO_AGENT, _holds("Admitted")) == agents, "all admitted", process
        )
        admitted = time.monotonic() - began
        await wait_until(
            lambda: _count(store, FEDERATED_JOB, _holds("Running")) == self.jobs, "all running", process
        )
        self._record("all applied after, s", f"{applied:.0f}")
        self._record("all agents created and admitted after, s", f"{admitted:.0f}")
        self._record("all jobs running after, s", f"{time.monotonic() - began:.0f}")
        self._say("creation", process.span_since(mark))

    async def _measure_steady_state(self, process: Process, aggregators: Aggregators) -> None:
        await asyncio.sleep(REPORT_SECONDS)
        mark, reports = process.mark(), aggregators.reports
        await asyncio.sleep(self.seconds)
        span = process.span_since(mark)
        self._record("steady state: reports per s", f"{(aggregators.reports - reports) / span.seconds:.0f}")
        self._say("steady state", span)
        self._record("steady state: writes besides the lease", str(len(span.writes)))
        self._record("RSS in steady state, MB", _megabytes(process.memory("VmRSS")))
        self._record("RSS at its peak (VmHWM), MB", _megabytes(process.memory("VmHWM")))

    async def _measure_restart(self, process: Process) -> None:
        """The operator starts again where everything is as it should be."""
        mark, began, served = process.mark(), time.monotonic(), self._served_writes()
        objects = self.jobs + self.jobs * self.silos + self.silos
        await wait_until(
            lambda: len(process.span_since(mark).reconciles) >= objects, "a reconcile of everything", process
        )
        self._record("started again: all looked at after, s", f"{time.monotonic() - began:.0f}")
        await asyncio.sleep(max(0.0, self.seconds - (time.monotonic() - began)))
        span = process.span_since(mark)
        self._say("started again", span)
        self._record("started again: writes besides the lease", str(len(span.writes)))
        others = self._served_writes() - served
        self._record(
            "started again: writes that the API server counted",
            (", ".join(f"{name} {count}" for name, count in sorted(others.items())) or "0"),
        )

    async def _completion(self, process: Process, store: Store, aggregators: Aggregators) -> None:
        mark, began = process.mark(), time.monotonic()
        aggregators.finishing = True
        await wait_until(
            lambda: _count(store, FEDERATED_JOB, _holds("Complete")) == self.jobs, "all complete", process
        )
        self._record("all jobs complete after, s", f"{time.monotonic() - began:.0f}")
        self._say("completion", process.span_since(mark))
        self._record("RSS after a second start, peak, MB", _megabytes(process.memory("VmHWM")))

    def _served_writes(self) -> Counter[str]:
        """Writes that the API server has done for anybody, by resource."""
        found: Counter[str] = Counter()
        for labels, value in _SERVED_METRIC.findall(self.kubectl.run("get", "--raw", "/metrics")):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if said["verb"] in ("POST", "PUT", "PATCH", "APPLY", "DELETE") and not said["dry_run"]:
                found[said["resource"]] += int(float(value))
        return found

    def _say(self, name: str, span: Span) -> None:
        measured = {
            "reconcile": span.reconciles,
            "wait for a worker": span.waits,
            "wait and reconcile": [sum(each) for each in zip(span.waits, span.reconciles, strict=True)],
            "event loop late": span.late,
        }
        for what, values in measured.items():
            figures = [_quantile(values, part) for part in (0.5, 0.99, 1.0)]
            self._record(
                f"{name}: {what}, p50 / p99 / max, ms", " / ".join(f"{1000 * each:.1f}" for each in figures)
            )
        self._record(f"{name}: reconciles", str(len(span.reconciles)))
        self._record(f"{name}: reconciles per s", f"{len(span.reconciles) / span.seconds:.1f}")
        self._record(f"{name}: requests per s", f"{len(span.requests) / span.seconds:.1f}")
        self._record(f"{name}: requests", str(len(span.requests)))
        for process, seconds in span.cpu.items():
            self._record(f"{name}: CPU of {process}, s", f"{seconds:.1f}")

    def _record(self, name: str, figure: str) -> None:
        """Print a line of the table as soon as it is known."""
        self.figures[name] = figure
        print(f"{name:<55} {figure}", flush=True)


async def wait_until(found: Callable[[], bool], what: str, process: Process | None = None) -> None:
    """Return when `found` holds.

    :param process: the operator that is to bring it about.
    """
    end = time.monotonic() + MAX_PHASE_SECONDS
    while not found():
        if process is not None:
            process.check()
        if time.monotonic() > end:
            raise SystemExit(f"waited {MAX_PHASE_SECONDS:.0f} s for {what}")
        await asyncio.sleep(0.2)


def _count(store: Store, kind: Kind, such: Callable[[Object], bool]) -> int:
    return sum(map(such, store.select(kind)))


def _holds(condition: str) -> Callable[[Object], bool]:
    return lambda obj: holds(obj, condition)


def _quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that this fraction does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else math.nan


def _megabytes(size: float) -> str:
    return f"{size / MB:.0f}"


def measure(count: int, members: int, seconds: float, folder: Path) -> dict[str, str]:
    """Run one load test and return its figures by name."""
    name = f"operator-load-{os.getpid()}"
    with api_server(name, controllers=True, pods=True) as kubeconfig:
        kubectl = Kubectl(kubeconfig)
        kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all")
        # The stand-ins of aggregators report with the account of an administrator.
        kubectl.run("delete", "validatingadmissionpolicybinding", "fedsilo-statuses")
        test = LoadTest(kubectl, name, folder, count, members, seconds)
        with suppress(KeyboardInterrupt):
            asyncio.run(test.run())
        return test.figures


def main() -> None:
    """Run one load test and print its figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator", description="Load of the operator."
    )
    parser.add_argument("--jobs", type=int, default=200, help="FederatedJobs (default: 200)")
    parser.add_argument("--silos", type=int, default=10, help="silos of each job (default: 10)")
    parser.add_argument("--seconds", type=float, default=60, help="length of each measurement (default: 60)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedsilo-operator-") as folder:
        measure(args.jobs, args.silos, args.seconds, Path(folder))


if __name__ == "__main__":
    main()
