"""Laboratory that runs trials: a warmed process to fork from, the template of a run, and what the undisturbed one
leaves."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fedsilo.errors import FedsiloError
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.workdir import RunDirectory
from tests.faults.manifests import federation, write_data
from tests.faults.outcome import Violation
from tests.paths import ROOT
from tests.recovery.machine import Machine
from tests.recovery.moment import Kill, drawn_kills
from tests.recovery.outage import Outage, OutageSample
from tests.recovery.own_cluster import OwnCluster
from tests.recovery.rotation import RotatingCluster, Rotation
from tests.recovery.trial import EndedRun, Place, Trial

SERVED_SILO = "north"
"""The silo that follows the hub, in runs in which that is killed by which it does."""

HUB = ("gateway", "aggregator")
"""The processes of the hub that are gone in an outage."""

VICTIMS: Mapping[str, Sequence[str]] = {
    "gateway": ["gateway"],
    "hub": HUB,
    "serve": [f"{SERVED_SILO}-serve"],
    "connector": [f"{SERVED_SILO}-connector"],
}
"""What is killed -> its processes, which die together."""

PLACES: Mapping[str, Callable[[Path, RunDirectory, str], Place]] = {"serve": Machine, "connector": OwnCluster}
"""What is killed -> where one of the silos runs then."""

METHOD = "fedphp"
"""A method that keeps private state, and models of the silos' own."""

PORT = 1
"""Port of the aggregator in the template."""


class Laboratory:
    """Tries kills one after the other; a context manager that leaves no process.

    :param directory: for the runs; each is removed unless its kills had an effect that they must not have.
    """

    def __init__(self, directory: Path) -> None:
        # Modules of the tests are imported in what is forked.
        os.environ["PYTHONPATH"] = str(ROOT)
        self._directory = directory
        self._server = ForkServerClient("recovery")
        self._undisturbed: EndedRun | None = None
        directory.mkdir(parents=True, exist_ok=True)
        write_data(directory)
        self._template = directory / "template"
        RunDirectory(self._template).write_inputs(federation(METHOD, directory), str(uuid.uuid4()), PORT)
        self._server.is_ready(seconds=120.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    @property
    def undisturbed_run(self) -> EndedRun:
        """The run in which nothing is killed."""
        if self._undisturbed is None:
            self._undisturbed = Trial(self._server, self._template, self._directory / "undisturbed").run()
            if self._undisturbed.left is None:
                raise Violation(f"the undisturbed run: {self._undisturbed.trouble} ({self._directory})")
        return self._undisturbed

    def attempt(self, victim: str, seed: int) -> EndedRun:
        """A run whose victim is killed at moments that the seed draws.

        :raises Violation: when it leaves anything else than the undisturbed one, with its directory, which stays.
        """
        expected, directory = self.undisturbed_run, self._directory / f"{victim}-{seed}"
        kills = drawn_kills(seed, expected.passed)
        trial = Trial(self._server, self._template, directory, VICTIMS[victim], kills)
        if victim in PLACES:
            trial.place = PLACES[victim](directory / "institution", trial.workdir, SERVED_SILO)
        return self._run_trial(trial)

    def outage(self, seconds: float, note: Callable[[OutageSample], None] = lambda _: None) -> EndedRun:
        """A run whose hub is gone for so long in the middle of a round.

        :param note: called with what both sides say, again and again from then on.
        :raises Violation: as `attempt`; also when the institution did not say so, or keeps no update for the hub.
        """
        directory = self._directory / "outage"
        kill = Kill(0, 0.0, seconds)
        trial = Outage(self._server, self._template, directory, HUB, [kill], note=note)
        trial.place = Machine(directory / "institution", trial.workdir, SERVED_SILO)
        return self._run_trial(trial)

    def rotation(self) -> tuple[EndedRun, Rotation]:
        """A run in which a silo replaces its key, and the job after it.

        :raises Violation: as `attempt`.
        """
        directory = self._directory / "rotation"
        job = federation(METHOD, self._directory)
        trial = Rotation(self._server, self._template, directory, job=job)
        trial.place = RotatingCluster(directory / "institution", trial.workdir, SERVED_SILO)
        return self._run_trial(trial, keep=True), trial

    def _run_trial(self, trial: Trial, keep: bool = False) -> EndedRun:
        expected = self.undisturbed_run
        try:
            ended = trial.run()
            require_same(ended, expected)
            require_no_traceback(trial.workdir)
            if isinstance(trial, Outage):
                _require_noticed(trial)
        except (Violation, FedsiloError) as error:
            raise Violation(f"{error} ({trial.directory})") from error
        if not keep:
            shutil.rmtree(trial.directory)
        return ended


def _require_noticed(outage: Outage) -> None:
    if outage.said != [True, False, True]:
        raise Violation(f"the institution said of the hub, one after the other: {outage.said}")
    if len(outage.waiting) != 1:
        raise Violation(f"signed updates that waited for the hub: {sorted(outage.waiting)}")


def require_same(ended: EndedRun, expected: EndedRun) -> None:
    """Return if a run has left what the undisturbed one has, byte for byte.

    :raises Violation: naming the first difference.
    """
    if ended.left is None or expected.left is None:
        raise Violation(ended.trouble)
    for name, value in expected.left.items():
        if ended.left.get(name) != value:
            raise Violation(f"{name}: {ended.left.get(name)} and not {value}")


def require_no_traceback(workdir: RunDirectory) -> None:
    """Return if no process has met with a defect.

    :raises Violation: naming its log.
    """
    for log in sorted(workdir.logs.glob("*.log")):
        if "Traceback" in log.read_text(errors="replace"):
            raise Violation(f"{log}: a traceback")
