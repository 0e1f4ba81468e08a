"""SIGKILL of guard and controller while a silo's jobs spend a privacy budget, at random moments.

    python -m tests.faults.budget --jobs 10 --kills 100 --page docs/results/privacy-budget.md

One directory of `fedsilo silo serve`, in which one job follows another. Afterwards the ledger has a charge for every
departure of the audit logs and none besides, each charge was there before its departure, and what is spent is what the
departures' mechanisms come to, to the last digit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.files.json_files import read_json
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.workdir import RunDirectory
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.silo.privacy_account import PrivacyAccount
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo_operator.objects import SILO_AGENT, ref_of
from tests.faults.manifests import SILOS, federation, write_data
from tests.faults.outcome import Violation
from tests.faults.proxy import Proxy
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.served import ServedCluster
from tests.paths import ROOT
from tests.ports import free_port
from tests.recovery.hub import propose
from tests.recovery.machine import Machine
from tests.recovery.supervisor import Supervisor
from tests.recovery.trial import EndedRun, Trial

SILO, DATASET, DELTA = "north", "vectors", 1e-2
EPSILON, BUDGET = 1.0, 100.0
"""Epsilon of a job, and budget of the silo: jobs are admitted by simple addition."""

ROUNDS = 12

OF_CONTROLLER = 0.3
"""Part of the kills that hit the controller, and with it guard and trainer."""

ALL_COMPLETE = "all jobs are complete"
"""In place of why not: what they have left is compared with no other run."""

LONGEST_PAUSE_SECONDS = 1.0
"""Longest pause between two kills; a round takes less than that."""

PAGE = """# Kills while a budget is spent

One silo on a machine of its own (`fedsilo silo serve`) takes part in {jobs} jobs with differential privacy, one after
the other, {rounds} rounds each, about a dataset with a [privacy budget](../privacy-budget.md). Guard and controller are
killed (SIGKILL) at random moments and started again.
`python -m tests.faults.budget --jobs {jobs} --kills {kills} --seed {seed}`:

| | |
|---|---:|
| kills of the guard | {guard} |
| kills of the controller, and with it of guard and trainer | {serve} |
| jobs that ended with a model | {jobs} |
| updates in the audit logs (departures) | {departures} |
| charges in the ledger | {charges} |
| departures without a charge before them | 0 |
| charges without a departure | 0 |
| spent, by the ledger | {spent!r} |
| epsilon of the departures' mechanisms | {departed!r} |

The campaign fails unless the last two are the same number.
"""


def private_job(number: int, data: Path) -> JobManifest:
    """A job with differential privacy, and a silo whose dataset has a budget."""
    made = federation("fedavg", data)
    job = made.job.model_dump(mode="json", by_alias=True, exclude_none=True)
    job["metadata"]["name"] = f"private-{number}"
    spec = job["spec"]
    spec["training"] |= {"rounds": ROUNDS, "batchSize": 8, "seed": number}
    spec["backoffLimit"] = 100
    spec["evaluation"] = {"testDataset": "tests"}
    source = {"path": str(data / "south.npz"), "features": "images", "labels": "labels"}
    spec["aggregator"] = {"datasets": [{"name": "tests", "loader": "npz", "config": source}]}
    spec["privacy"]["differentialPrivacy"] = {"unit": "example", "epsilon": EPSILON, "delta": DELTA}
    silos = [silo.model_dump(mode="json", by_alias=True, exclude_none=True) for silo in made.silos]
    for silo in silos:
        if silo["metadata"]["name"] == SILO:
            budget = {"dataset": DATASET, "epsilon": BUDGET, "delta": DELTA}
            silo["spec"]["policy"]["privacyBudget"] = [budget]
        silo["spec"]["policy"]["minSamplesPerUpdate"] = 1
    return JobManifest(
        job["metadata"]["name"],
        FederatedJob.model_validate(job),
        tuple(Silo.model_validate(silo) for silo in silos),
    )


class KilledMachine(Machine):
    """A silo whose guard and controller are killed at random moments, as long as kills are left.

    :ivar killed: how often each was.
    """

    def __init__(self, root: Path, workdir: RunDirectory, chance: random.Random) -> None:
        super().__init__(root, workdir, SILO)
        self.left = 0
        self.killed = {"guard": 0, "serve": 0}
        self._chance, self._due = chance, 0.0

    def allow(self, kills: int) -> None:
        """Permit so many more."""
        self.left += kills

    @override
    def look(self, supervisor: Supervisor) -> None:
        """Kill what is due."""
        now = time.monotonic()
        if self.left <= 0 or now < self._due:
            return
        self._due = now + self._chance.uniform(0.02, LONGEST_PAUSE_SECONDS)
        serve, guard = supervisor.parts[f"{SILO}-serve"], None
        if serve.pid is not None:
            guard = self._guard_of(serve.pid)
        # A controller that is killed again and again before it has begun would let nothing happen.
        if self._chance.random() < (OF_CONTROLLER if guard is not None else OF_CONTROLLER / 4):
            killed, victim = supervisor.kill(serve.name), "serve"
        else:
            killed, victim = guard is not None and _killed(guard), "guard"
        self.killed[victim] += killed
        self.left -= killed

    def _guard_of(self, controller: int) -> int | None:
        """The guard that this very controller has; the file may be of one that is gone."""
        shown = read_json(self.directory.serving) or {}
        processes = shown.get("processes", {})
        parent = processes.get("fork server")
        if shown.get("pid") != controller or parent is None or _parent(parent) != controller:
            return None
        guards = [pid for name, pid in processes.items() if name.endswith(" guard")]
        return next((pid for pid in guards if _parent(pid) == parent), None)

    @override
    def show(self) -> None:
        """The directory stays as it is: nothing is compared with another run."""


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


@dataclass
class BudgetTrial(Trial):
    """Jobs one after the other in one silo's directory.

    :param jobs: their number.
    :param kills_in_all: shared among them.
    :param data: directory of the silos' vectors.
    """

    jobs: int = field(kw_only=True)
    kills_in_all: int = field(kw_only=True)
    data: Path = field(kw_only=True)

    @override
    def supervise(self, supervisor: Supervisor, proxy: Proxy, cluster: ServedCluster) -> str:
        """Run all jobs, one after the other; why one did not come to its end."""
        place = self.place
        assert isinstance(place, KilledMachine)
        for number in range(self.jobs):
            if number:
                self._begin(number, supervisor, proxy, cluster)
            place.allow(
                self.kills_in_all * (number + 1) // self.jobs - self.kills_in_all * number // self.jobs
            )
            if trouble := super().supervise(supervisor, proxy, cluster):
                return f"job {number}: {trouble}"
            print(f"job {number}: complete after {place.killed} kills", flush=True)
        return ALL_COMPLETE

    def _begin(self, number: int, supervisor: Supervisor, proxy: Proxy, cluster: ServedCluster) -> None:
        workdir, port = RunDirectory(self.directory / f"run-{number}"), free_port()
        for silo in SILOS:
            guard = workdir.volume(silo).guard
            guard.mkdir(parents=True)
            shutil.copy(self.workdir.volume(silo).guard / "key.pem", guard)
        workdir.write_inputs(private_job(number, self.data), str(uuid.uuid4()), port)
        for name in [part.name for part in supervisor.parts.values() if not part.endless]:
            del supervisor.parts[name]
        address = self.site.address(proxy.port)
        cluster.ask(_without_agents)
        cluster.ask(lambda held: propose(held, workdir, SILOS, port, address))
        for part in self.parts_of(workdir, port, proxy.port, self.site.ca):
            supervisor.parts[part.name] = part


def _without_agents(held: FakeCluster) -> None:
    for agent in held.objects(SILO_AGENT):
        held.remove(SILO_AGENT, ref_of(agent))


@dataclass(frozen=True)
class Books:
    """What ledger and audit logs say of each other.

    :param departures: number of updates in the audit logs.
    :param departed: epsilon of their mechanisms.
    """

    account: PrivacyAccount
    departures: int
    departed: float


def check(machine: Machine) -> Books:
    """Compare ledger and audit logs.

    :raises Violation: when they do not agree.
    """
    account = PrivacyLedger(machine.directory.ledgers, DATASET).account(datetime.now(UTC))
    charged = {charge.update: (moment, charge) for moment, charge in account.charges}
    departures = {line["digest"]: datetime.fromisoformat(line["time"]) for line in _departures(machine)}
    if len(charged) != len(account.charges):
        raise Violation("an update was charged twice")
    if charged.keys() != departures.keys():
        raise Violation(
            f"{len(departures.keys() - charged.keys())} departures without a charge, "
            f"{len(charged.keys() - departures.keys())} charges without a departure"
        )
    late = [update for update, departed in departures.items() if charged[update][0] > departed]
    if late:
        raise Violation(f"{len(late)} departures before their charge")
    mechanisms = [each for update in departures for each in charged[update][1].mechanisms]
    departed = epsilon_of(mechanisms, DELTA)
    if departed != account.spent_epsilon:
        raise Violation(f"spent {account.spent_epsilon!r}, and the departures come to {departed!r}")
    return Books(account, len(departures), departed)


def _departures(machine: Machine) -> Iterator[Any]:
    """Each update once, as it was signed first: after a restart the same bytes may be on record again."""
    seen = set()
    for log in sorted(machine.directory.agents.glob("*/volume/audit/log.jsonl")):
        for text in log.read_text().splitlines():
            line = json.loads(text)
            if line["event"] == "departure" and line["digest"] not in seen:
                seen.add(line["digest"])
                yield line


def campaign(directory: Path, jobs: int, kills: int, seed: int) -> tuple[EndedRun, KilledMachine]:
    """The whole of it, in a directory that stays."""
    os.environ["PYTHONPATH"] = str(ROOT)  # modules of the tests are imported in what is forked
    directory.mkdir(parents=True, exist_ok=True)
    write_data(directory)
    template = directory / "template"
    RunDirectory(template).write_inputs(private_job(0, directory), str(uuid.uuid4()), 1)
    server = ForkServerClient("budget")
    try:
        server.is_ready(seconds=120.0)
        trial = BudgetTrial(
            server, template, directory / "trial", jobs=jobs, kills_in_all=kills, data=directory
        )
        machine = KilledMachine(directory / "institution", trial.workdir, random.Random(seed))
        trial.place = machine
        return trial.run(), machine
    finally:
        server.close()


def main() -> int:
    """Run jobs under kills and check the ledger; 1 when the books do not agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="for the runs (default: a temporary one)")
    parser.add_argument("--page", type=Path, help="page to write with the figures")
    args = parser.parse_args()
    directory = args.directory or Path(tempfile.mkdtemp(prefix="budget."))
    ended, machine = campaign(directory, args.jobs, args.kills, args.seed)
    try:
        books = check(machine)
    except Violation as violation:
        print(f"{violation} ({directory})")
        return 1
    print(f"{machine.killed}, {books.departures} departures, spent {books.account.spent_epsilon!r}")
    if ended.trouble != ALL_COMPLETE:
        print(f"{ended.trouble} ({directory})")
        return 1
    if args.page is not None:
        facts = {"departures": books.departures, "charges": len(books.account.charges), **machine.killed}
        figures = {"spent": books.account.spent_epsilon, "departed": books.departed}
        given = {"jobs": args.jobs, "kills": args.kills, "seed": args.seed, "rounds": ROUNDS}
        args.page.write_text(PAGE.format(**facts, **figures, **given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
