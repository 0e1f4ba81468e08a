"""Laboratory that runs faults: a warmed process to fork from, templates of runs, and what undisturbed ones leave."""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.workdir import RunDirectory
from tests.faults.fault import Fault, Place
from tests.faults.manifests import federation, silos_of, write_data
from tests.faults.outcome import Snapshot, Violation, judge, snapshot
from tests.faults.trial import PORT, Trial
from tests.paths import ROOT


@dataclass(frozen=True)
class UndisturbedRun:
    """A run without a fault.

    :param places: every durable step of every role.
    :param passed: bytes between silos and aggregator.
    """

    places: Sequence[Place]
    left: Snapshot
    passed: int


class Laboratory:
    """Tries faults one after the other; a context manager that leaves no process.

    :param directory: for the runs; each is removed unless its fault had an effect that it must not have.
    """

    def __init__(self, directory: Path, server: ForkServerClient) -> None:
        self._directory = directory
        self._server = server
        self._numbers = itertools.count(1)
        self._undisturbed: dict[str, UndisturbedRun] = {}
        directory.mkdir(parents=True, exist_ok=True)
        write_data(directory)
        server.is_ready(seconds=120.0)

    @classmethod
    def open_laboratory(cls, directory: Path) -> Self:
        """One with a warmed process of its own."""
        # Modules of the tests are imported in what is forked.
        os.environ["PYTHONPATH"] = str(ROOT)
        return cls(directory, ForkServerClient("faults"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def undisturbed_run(self, method: str) -> UndisturbedRun:
        """What a method's run is without a fault."""
        if method not in self._undisturbed:
            self._undisturbed[method] = self._observe(method)
        return self._undisturbed[method]

    def attempt(self, fault: Fault, program: str = "tests.faults.role") -> str:
        """Do a fault to a run; what came of it, as `outcome.judge` says.

        :param program: what runs the roles; a test may run them with a defect.
        :raises Violation: with the directory of the run, which stays.
        """
        expected = self.undisturbed_run(fault.method).left
        directory = self._directory / f"{next(self._numbers):05}"
        ended = Trial(self._server, self._template(fault.method), directory, fault, program).run()
        try:
            found = judge(fault, ended, expected)
        except Exception as error:
            raise Violation(f"{error} ({directory})") from error
        shutil.rmtree(directory)
        return found

    def _template(self, method: str) -> Path:
        return self._directory / f"{method}.template"

    def _observe(self, method: str) -> UndisturbedRun:
        template = self._template(method)
        template.mkdir()
        RunDirectory(template).write_inputs(federation(method, self._directory), str(uuid.uuid4()), PORT)
        trial = Trial(self._server, template, self._directory / f"{method}.undisturbed")
        ended = trial.run()
        if ended.trouble or any(ended.codes.values()):
            raise Violation(f"{method}: the undisturbed run: {ended}")
        places = []
        for role in (
            "aggregator",
            *(f"{silo} {part}" for silo in silos_of(method) for part in ("guard", "trainer")),
        ):
            for line in trial.control.steps(role).read_text().splitlines():
                places.append(Place.parse(f"{role}: {line}"))
        return UndisturbedRun(places, snapshot(ended.workdir), trial.passed)
