"""One run of each system, measured in the same way: round by round, and process by process."""

from __future__ import annotations

import json
import math
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import yaml

from benchmarks.transport import floors
from benchmarks.transport.model import SentModel, documents
from benchmarks.transport.processes import (
    START,
    Boundary,
    Program,
    Usage,
    Watch,
    proportional,
    reset_peak,
    start_program,
    usage,
    wait_until_quiet,
)
from benchmarks.transport.steps import ACKNOWLEDGEMENTS, RECEIPT, UPLOAD, RecordedCall, read_records
from fedsilo.api.loading import load as load_job
from fedsilo.engine.record import receipts
from fedsilo.files.digests import SHA256
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods.interface import EVALUATE
from fedsilo.wire import issue_server, make_authority

FEDSILO, TLS, CHECKED_FLOOR, ISOLATED_FLOOR = "fedsilo", "TLS floor", "checked floor", "isolated floor"
SYSTEMS = (TLS, CHECKED_FLOOR, ISOLATED_FLOOR, FEDSILO)

SERVING_SECONDS = 300.0


@dataclass(frozen=True)
class Load:
    """What is sent, by whom, how often.

    :param rounds: that count; the first of a run and the last one do not.
    :param processes: that the silos share, for each of their roles.
    :param digest: the hash of what is large, in the floors that check, too.
    """

    model: SentModel
    silos: int
    rounds: int
    processes: int
    digest: str = SHA256

    @property
    def names(self) -> list[str]:
        """Names of the silos, `s0` and so on."""
        return [f"s{number}" for number in range(self.silos)]


@dataclass(frozen=True)
class RoleUsage:
    """What the processes of a role used in the rounds that count.

    :param cpu: seconds in each round, of all of them.
    :param read: bytes that were read from storage, and `written` to it, per round.
    :param idle: resident bytes before the first round, at its peak, and how far the peak is above idle: each of the
        process that has most.
    :param allocated: how far the peak of `RssAnon`, which has no mapped files in it, is above that of the idle process.
    :param shared: PSS of all of them when idle.
    """

    processes: int
    cpu: list[float]
    read: float
    written: float
    idle: int
    peak: int
    above: int
    allocated: int
    shared: int


@dataclass(frozen=True)
class RunMeasurement:
    """What one run has measured, in the rounds that count.

    :param seconds: of each round that counts.
    :param began: when the first of them did, `time.monotonic()`.
    :param uploads: seconds of each upload in these rounds, from its first request to the receipt.
    :param receipts: seconds from an upload's last byte to its receipt.
    :param lost: updates of the run that were not accepted.
    :param end: seconds from the end of the last round to that of the server's process; None for a floor.
    :param load_average: of the machine, over a minute, when the last round that counts had ended.
    """

    system: str
    seconds: list[float]
    roles: dict[str, RoleUsage]
    began: float
    uploads: list[float] = field(default_factory=list)
    receipts: list[float] = field(default_factory=list)
    lost: int = 0
    end: float | None = None
    load_average: float = 0.0


def run_floor(system: str, load: Load, directory: Path) -> RunMeasurement:
    """Run one of the floors."""
    kinds = {TLS: floors.TLS, CHECKED_FLOOR: load.digest, ISOLATED_FLOOR: f"{load.digest}{floors.ISOLATED}"}
    kind, port = kinds[system], free_port()
    authority = make_authority()
    certificate, key = issue_server(authority, ["127.0.0.1"])
    for name, content in (("server.crt", certificate), ("server.key", key), ("ca.crt", authority.cert_pem)):
        (directory / name).write_bytes(content)
    rounds, size = load.rounds + 2, load.model.size
    program = ["-m", "benchmarks.transport.floors"]
    server = [*program, "server", directory, kind, load.silos, rounds, size, port]
    silos = [*program, "silos", directory, kind, rounds, size, port, load.processes, *load.names]
    with ExitStack() as stack:
        programs = [stack.enter_context(_start_program("server", server, directory, forks=True))]
        programs.append(stack.enter_context(_start_program("silos", silos, directory, forks=True)))
        measuring = Measuring(programs, directory / floors.ROUNDS, load)
        (directory / START).touch()
        found = measuring.rounds(system, load)
        for running in programs:
            running.wait()
    return found


def run_fedsilo(
    load: Load, directory: Path, steps: str = ACKNOWLEDGEMENTS
) -> tuple[RunMeasurement, list[RecordedCall]]:
    """Run the job and return what was measured, and the steps that were recorded in the rounds that count."""
    workdir, port, records = RunDirectory(directory / "run"), free_port(), directory / "records"
    (directory / "job.yaml").write_text(
        yaml.safe_dump_all(documents(load.model, load.silos, load.rounds + 2, load.digest))
    )
    for folder in (records, workdir.root):
        folder.mkdir()
    workdir.write_inputs(load_job(directory / "job.yaml"), str(uuid.uuid4()), port)
    secrets, own = workdir.secrets, workdir.aggregator
    program = ["-m", "benchmarks.transport.roles"]
    aggregator = [*program, "aggregator", records, steps, "--config", own / "config.json", "--dir", own]
    aggregator += ["--task-key", secrets / "task-key.pem", "--host", "127.0.0.1", "--port", port]
    aggregator += ["--tls-cert", secrets / "server.crt", "--tls-key", secrets / "server.key"]
    agents = [records, steps, workdir.root, load.processes, *load.names]
    with ExitStack() as stack:
        programs = [stack.enter_context(_start_program("aggregator", aggregator, directory, forks=False))]
        wait_until_serving(programs[0], port)
        for role in ("trainers", "guards"):
            arguments = [*program, role, *agents]
            programs.append(stack.enter_context(_start_program(role, arguments, directory, forks=True)))
        history = own / "history.jsonl"
        measuring = Measuring(programs, history, load)
        (workdir.root / START).touch()
        found = measuring.rounds(FEDSILO, load)
        (last,) = measuring.watch.rounds(1)
        programs[0].wait()
        end = time.monotonic() - last.moment
        for running in programs:
            running.wait()
        lost = load.silos * (load.rounds + 2) - accepted_updates(history)
    steps_of_all = read_records(records)
    counted = [one for one in steps_of_all if measuring.began <= one.ended <= measuring.ended]
    uploads, receipts = (_seconds_of(step.label, steps_of_all, load) for step in (UPLOAD, RECEIPT))
    return replace(found, uploads=uploads, receipts=receipts, lost=lost, end=end), counted


def _seconds_of(label: str, steps: Sequence[RecordedCall], load: Load) -> list[float]:
    """Seconds that a step took which each silo has once in a round, in the rounds that count.

    It may end after the line of its round, so it is told by its place among all of them.
    """
    ended = sorted((one.ended, one.ended - one.began) for one in steps if one.label == label)
    return [seconds for _, seconds in ended[load.silos : load.silos * (load.rounds + 1)]]


class Measuring:
    """The measurement of a run whose programs are started and idle.

    :ivar began: and `ended`: when the rounds that count did.
    """

    def __init__(self, programs: Sequence[Program], lines: Path, load: Load) -> None:
        wait_until_quiet(programs, math.ceil(load.silos / load.processes))
        self.watch = Watch(programs, lines)
        self.began = self.ended = 0.0
        self._programs = programs
        self._pids = {program.role: program.pids for program in programs}
        self._idle = self._usage()
        self._shared = {pid: proportional(pid) for pids in self._pids.values() for pid in pids}
        for pid in self._shared:
            reset_peak(pid)

    def rounds(self, system: str, load: Load) -> RunMeasurement:
        """Run the first round, which does not count, and then those that do."""
        bounds = self.watch.rounds(1)
        before = self._usage()
        bounds += self.watch.rounds(load.rounds)
        after = self._usage()
        self.began, self.ended = bounds[0].moment, bounds[-1].moment
        roles = {
            role: self._of_role(pids, bounds, before, after, load.rounds) for role, pids in self._pids.items()
        }
        seconds = [there.moment - here.moment for here, there in pairwise(bounds)]
        return RunMeasurement(system, seconds, roles, self.began, load_average=os.getloadavg()[0])

    def _usage(self) -> dict[int, Usage]:
        return {pid: usage(pid) for pids in self._pids.values() for pid in pids}

    def _of_role(
        self,
        pids: Sequence[int],
        bounds: Sequence[Boundary],
        before: Mapping[int, Usage],
        after: Mapping[int, Usage],
        rounds: int,
    ) -> RoleUsage:
        idle, allocated = self._idle, self.watch.allocated
        disk = [sum(after[pid].disk[way] - before[pid].disk[way] for pid in pids) / rounds for way in (0, 1)]
        return RoleUsage(
            processes=len(pids),
            cpu=[
                round(sum(there.cpu[pid] - here.cpu[pid] for pid in pids), 3)
                for here, there in pairwise(bounds)
            ],
            read=disk[0],
            written=disk[1],
            idle=max(idle[pid].memory["resident"] for pid in pids),
            peak=max(after[pid].memory["peak"] for pid in pids),
            above=max(after[pid].memory["peak"] - idle[pid].memory["resident"] for pid in pids),
            allocated=max(allocated.get(pid, 0) - idle[pid].memory["anonymous"] for pid in pids),
            shared=sum(self._shared[pid] for pid in pids),
        )


def accepted_updates(history: Path) -> int:
    """Updates with which the rounds of a job were closed, without those that score the model."""
    lines = history.read_text().splitlines()
    return sum(phase != EVALUATE for line in lines for _, phase, _ in receipts(json.loads(line)))


def wait_until_serving(program: Program, port: int) -> None:
    """Return when the port answers."""
    until = time.monotonic() + SERVING_SECONDS
    while time.monotonic() < until:
        program.require_running()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"{program.role}: does not answer within {SERVING_SECONDS:g} s")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_program(
    role: str, arguments: Sequence[object], directory: Path, forks: bool
) -> AbstractContextManager[Program]:
    return start_program(role, [str(argument) for argument in arguments], directory / f"{role}.log", forks)
