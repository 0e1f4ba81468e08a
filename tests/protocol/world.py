"""One run in virtual time: two silos, an aggregator and what the plan has in store for them, to its end."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import shutil
import ssl
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from typing_extensions import override

from fedsilo.engine import round_engine
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.hub.authorities import TlsContextCache
from fedsilo.silo import file_watch, volume
from fedsilo.updates.round_updates import StoredUpdates
from fedsilo.wire import open_update
from fedsilo_agent.guard import client as client_module
from fedsilo_aggregator import rounds
from tests.protocol.disk import Disk
from tests.protocol.job import Job, job_of, methods_known
from tests.protocol.network import NOBODY, Network
from tests.protocol.numeric import KIND, Runner
from tests.protocol.plan import PARTIES, SILOS, Crash, FullDisk, Message, Plan
from tests.protocol.processes import RUNNING, Process, ProcessDeath, by_process
from tests.protocol.virtual_time import EPOCH, VirtualLoop, virtual_clocks
from tests.updates import digest_of_file

LIMIT_SECONDS = 3000.0
"""Longest time of a run: all faults of a plan together take less than half of it."""

TLS_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Context of every guard's connections, without the system's authorities: reading them takes a fifth of a run."""

FAREWELL_SECONDS = 200.0
"""Time that guards and trainers get to end after the aggregator has."""


@dataclass(frozen=True)
class Acceptance:
    """An update that became durable at the aggregator.

    :param on_record: whether the silo's audit log had a departure of it at that moment.
    :param acknowledged: whether its guard knew an update of the task as accepted already.
    :param link: tokens before and after, where the method's answers hold them.
    """

    task: str
    digest: str
    on_record: bool
    acknowledged: bool
    link: tuple[int, int] | None

    @property
    def silo(self) -> str:
        """Whose update it is."""
        return self.task.rpartition("-")[2]


@dataclass
class RunRecord:
    """What a run was seen to do.

    :ivar damaged: files, as `machine/path`.
    :ivar powerless: machines whose power was cut.
    :ivar story: what happened when, for people.
    :ivar defects: errors that nobody should see.
    """

    accepted: list[Acceptance] = field(default_factory=list)
    folded: list[Mapping[str, str]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    powerless: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)


class World:
    """A run of a plan.

    :param directory: for the disks; empty.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.loop = VirtualLoop()
        self.loop.set_task_factory(by_process)
        self.loop.set_exception_handler(self._handle_exception)
        self.job: Job = job_of(plan.method, plan.deadline)
        self.seen = RunRecord()
        mishaps = {
            (fault.silo, fault.request): fault.mishap for fault in plan.faults if isinstance(fault, Message)
        }
        self.network = Network(self.loop, mishaps)
        powerless = {
            fault.party.split()[0] for fault in plan.faults if isinstance(fault, Crash) and fault.power
        }
        self.disks = {
            name: Disk(directory / name, directory / f"{name}-disk" if name in powerless else None)
            for name in ("aggregator", *SILOS)
        }
        self.processes: dict[str, Process] = {}
        self.steps: Counter[str] = Counter()
        self._faults = {
            (fault.party, fault.step): fault for fault in plan.faults if not isinstance(fault, Message)
        }
        self._over = asyncio.Event()
        self.seconds = 0.0

    def now(self) -> datetime:
        """The time of day."""
        return datetime.fromtimestamp(EPOCH + self.loop.now, UTC)

    def run(self) -> RunRecord:
        """Run to the end of the job."""
        with self._simulate_storage():
            try:
                self.loop.run_until_complete(self._run_parties())
            finally:
                self._clear()
        return self.seen

    def on_process_end(self, process: Process) -> None:
        """A process has ended by itself."""
        how = "well" if process.error is None else f"with {type(process.error).__name__}: {process.error}"
        self._tell(f"{process.party} ends {how}")
        if all(process.ended for process in self.processes.values()) or process.party == "aggregator":
            self._over.set()

    async def _run_parties(self) -> None:
        for party in PARTIES:
            self._start(party)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._over.wait()
        except TimeoutError:
            self.seen.defects.append(f"the job has not ended after {LIMIT_SECONDS:g} s")
        self.seconds = self.loop.now
        until = self.loop.now + FAREWELL_SECONDS
        while self.loop.now < until and not all(process.ended for process in self.processes.values()):
            await asyncio.sleep(1.0)

    def _start(self, party: str) -> None:
        self._tell(f"{party} starts")
        self.processes[party] = Process(self, party)

    def take(self, step: DiskStep, perform: Callable[[], None]) -> None:
        """What `fedsilo.files.durable` calls for every durable step."""
        process = RUNNING.get()
        assert process is not None
        if process.dead:
            raise ProcessDeath
        party = process.party
        disk = self.disks[party.split()[0]]
        if not step.path.is_relative_to(disk.root):  # the entry of the disk itself
            perform()
            return
        self.steps[party] += 1
        fault = self._faults.get((party, self.steps[party]))
        if isinstance(fault, FullDisk):
            self._fill(party, disk, fault)
        if isinstance(fault, Crash) and fault.before:
            self._crash(process, fault, step)
            raise ProcessDeath
        disk.take(step, perform)
        self._watch(step)
        if isinstance(fault, Crash):
            self._crash(process, fault, step)
            if step.operation != "create":  # it has opened a file, which must be closed
                raise ProcessDeath

    def _fill(self, party: str, disk: Disk, fault: FullDisk) -> None:
        self._tell(f"the disk of {party} is full for {fault.seconds:g} s")
        self.seen.happened["full disk"] += 1
        disk.full = True

        def clear() -> None:
            disk.full = False

        self.loop.call_later(fault.seconds, clear, context=NOBODY)

    def _crash(self, process: Process, fault: Crash, step: DiskStep) -> None:
        machine = process.party.split()[0]
        victims = [process]
        if fault.power:
            victims = [
                other
                for other in self.processes.values()
                if other.party.split()[0] == machine and not other.dead and not other.ended
            ]
        for victim in victims:
            victim.die()
        kind = "power cut" if fault.power else "crash"
        self.seen.happened[kind] += 1
        when = "before" if fault.before else "after"
        path = (step.target or step.path).relative_to(self.disks[machine].root)
        parties = " and ".join(victim.party for victim in victims)
        self._tell(f"{kind} of {parties} {when} {step.operation} of {path}")
        self.loop.call_soon(self._bury, victims, fault, context=NOBODY)

    def _bury(self, victims: list[Process], fault: Crash) -> None:
        machine, _, role = fault.party.partition(" ")
        for victim in victims:
            victim.bury()
        if fault.power:
            self.disks[machine].cut(random.Random(fault.step))
            self.seen.powerless.add(machine)
        if fault.damage is not None:
            damaged = self.disks[machine].damage(role or machine, fault.damage)
            if damaged is not None:
                self._tell(f"{machine}/{damaged}")
                self.seen.damaged.append(f"{machine}/{damaged}")
                self.seen.happened["damaged file"] += 1
        for victim in victims:
            self.seen.happened["restart"] += 1
            self.loop.call_later(max(fault.down, 0.01), self._start, victim.party, context=NOBODY)

    def _watch(self, step: DiskStep) -> None:
        path = step.target
        if step.operation != "rename" or path is None or path.suffix != ".update":
            return
        if path.is_relative_to(self.disks["aggregator"].root):
            task, digest = path.stem, digest_of_file(path)
            silo = task.rpartition("-")[2]
            known = digest in self.departures(silo, task)
            before = any(
                line["event"] == "acknowledged" and line["task"] == task for line in self.audit(silo)
            )
            self.seen.accepted.append(Acceptance(task, digest, known, before, _link(path)))
            self._tell(f"the aggregator accepts {task}, {digest[:8]}")

    def damaged(self, machine: str, below: str = "") -> bool:
        """Whether a file of the machine was damaged, in this directory."""
        return any(name.startswith(f"{machine}/{below}") for name in self.seen.damaged)

    def lost_power(self, machine: str) -> bool:
        """Whether the machine's power was cut."""
        return machine in self.seen.powerless

    def audit(self, silo: str) -> list[dict[str, Any]]:
        """Lines of a silo's audit log that can be read."""
        path = self.disks[silo].root / "audit" / "log.jsonl"
        lines = []
        for text in path.read_bytes().splitlines() if path.exists() else ():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
        return lines

    def departures(self, silo: str, task: str) -> list[str]:
        """Digests of what the silo's guard has recorded as leaving for a task."""
        return [
            line["digest"]
            for line in self.audit(silo)
            if line["event"] == "departure" and line["task"] == task
        ]

    def _tell(self, what: str) -> None:
        self.seen.story.append(f"{self.loop.now:9.3f}  {what}")

    def _handle_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        process = RUNNING.get()
        if isinstance(error, ProcessDeath) or (process is not None and process.dead):
            return
        self.seen.defects.append(f"{context['message']}: {error!r}")

    def _clear(self) -> None:
        """End what still runs, and everything that it has left on the loop."""
        for process in self.processes.values():
            process.die()
            process.bury()
        self._faults.clear()
        for _ in range(10):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    @contextmanager
    def _simulate_storage(self) -> Iterator[None]:
        numbers = iter(range(1 << 30))
        folded = self.seen.folded

        class WatchedUpdates(StoredUpdates):
            def __init__(self, paths: Mapping[str, Path]) -> None:
                super().__init__(paths)
                folded.append({path.stem: digest_of_file(path) for path in paths.values()})

        Runner.attempts = 0
        handler = _Errors(self.seen.defects)
        patches: list[tuple[Any, str, Any]] = [
            (durable, "intercept", self.take),
            (secrets, "token_hex", lambda _: f"{next(numbers):08x}"),
            (client_module, "random", random.Random(0)),
            (volume, "MAX_PAUSE_SECONDS", 4.0),
            (file_watch, "open_inotify", lambda: None),
            (TlsContextCache, "_load", lambda _: TLS_CONTEXT),
            (rounds, "TICK_SECONDS", 1.0),
            (round_engine, "release_free_memory", lambda: None),
            (round_engine, "StoredUpdates", WatchedUpdates),
        ]
        with methods_known(), virtual_clocks(self.loop), ExitStack() as stack:
            for owner, name, value in patches:
                stack.enter_context(mock.patch.object(owner, name, value))
            logging.getLogger().addHandler(handler)
            stack.callback(logging.getLogger().removeHandler, handler)
            yield


class _Errors(logging.Handler):
    """Tracebacks in a log: a party's code has met what it did not expect."""

    def __init__(self, defects: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._defects = defects

    @override
    def emit(self, record: logging.LogRecord) -> None:
        process = RUNNING.get()
        if (
            record.exc_info
            and not isinstance(record.exc_info[1], ProcessDeath)
            and (process is None or not process.dead)
        ):
            self._defects.append(f"{record.name}: {record.getMessage()}: {record.exc_info[1]!r}")


def _link(update: Path) -> tuple[int, int] | None:
    with open_update(update) as opened:
        if "link" not in opened.names(KIND):
            return None
        link = opened.tensor("link")
        return int(link[0]), int(link[1])


@contextmanager
def place() -> Iterator[Path]:
    """A directory in memory for the disks of a run."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="fedsilo-protocol-", dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)
