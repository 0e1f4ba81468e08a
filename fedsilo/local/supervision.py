"""Watching over the processes of a run: what crashes is started again, and an end for good is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedsilo.files.json_files import write_json
from fedsilo.local.child_processes import ChildProcess, ForkServerClient
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.outcome import is_dismissed, lost_guard, report_lost_trainer
from fedsilo.local.progress import RunProgress

POLL_SECONDS = 0.1
"""Time between two checks of the processes and the aggregator's status."""

ENDING_POLL_SECONDS = 0.02
"""Time between two checks once the aggregator has ended, when all others are about to."""

LAST_TASK_SECONDS = 3.0
"""Time in which guards and trainers may end by themselves: the aggregator gave them their last task before it ended."""


@dataclass
class Supervision:
    """The processes of one run.

    :param agents: guards and trainers, named after their silo.
    """

    aggregator: ChildProcess
    agents: Sequence[ChildProcess]
    server: ForkServerClient
    progress: RunProgress
    space: DiskSpaceCheck
    _reported: set[str] = field(default_factory=set)
    _known: dict[str, int | None] = field(default_factory=dict)
    _lost: dict[str, dict[str, str]] = field(default_factory=dict)

    def run(self, check: Callable[[], None]) -> None:
        """Return when the aggregator has ended, and with it the job.

        :param check: called often; what it raises ends the run.
        """
        while not self.aggregator.ended:
            check()
            self.step()
            self.progress.read()
            time.sleep(POLL_SECONDS)
        until = time.monotonic() + LAST_TASK_SECONDS
        while (
            self.aggregator.exit_code in (0, 4)
            and not all(process.ended for process in self._dismissible_agents())
            and time.monotonic() < until
        ):
            check()
            self.server.poll()
            self.space.attempt(self._supervise_agents)
            time.sleep(ENDING_POLL_SECONDS)

    def _dismissible_agents(self) -> list[ChildProcess]:
        """Guards and trainers that hear of the job's end: a trainer hears it from its guard."""
        return [process for process in self.agents if process.name.rpartition(" ")[0] not in self._lost]

    def step(self) -> None:
        """Start and start again what should run, and write down what does."""
        self.server.poll()
        # While the disk is full, what is started could only crash again.
        if not self.space.is_full:
            self.space.attempt(self._supervise_all)
        self.space.attempt(self._write_pids)

    def _supervise_all(self) -> None:
        for process in (self.aggregator, *self.agents):
            process.supervise()
            if process.ended and process.name not in self._reported:
                self._report_end(process)
                self._reported.add(process.name)

    def _supervise_agents(self) -> None:
        for process in self.agents:
            process.supervise()

    def _write_pids(self) -> None:
        pids: dict[str, int | None] = {"fork server": self.server.pid}
        pids |= {process.name: process.pid for process in (self.aggregator, *self.agents)}
        if pids != self._known or self.space.is_full:
            write_json(self.progress.workdir.root / "processes.json", pids)
            self._known = pids

    def _report_end(self, process: ChildProcess) -> None:
        """Tell whoever would wait for the process until a deadline: a trainer's guard, or the aggregator of a guard."""
        silo, _, role = process.name.rpartition(" ")
        early = role == "trainer" and process.exit_code == 0 and not self._is_dismissed(silo)
        if process.exit_code == 0 and not early:
            return
        why = " too early" if early else ""
        if role == "trainer":
            report_lost_trainer(process, self.progress.workdir.volume(silo))
        elif role == "guard":
            lost = self._report_lost_guard(silo, process)
            why = f": {lost['reason']}: {lost['message']}"
        self.progress.note(
            f"{process.name}: ended with exit code {process.exit_code}{why}; see {process.log_file}"
        )

    def _is_dismissed(self, silo: str) -> bool:
        # Job code can end its process with 0, too, as if there were nothing left to do.
        return is_dismissed(self.progress.workdir.volume(silo))

    def _report_lost_guard(self, silo: str, guard: ChildProcess) -> dict[str, str]:
        found = self._lost[silo] = lost_guard(guard)
        references = {each.metadata.name: str(each) for each in self.progress.federation.silos}
        write_json(
            self.progress.workdir.lost_silos, {references[name]: why for name, why in self._lost.items()}
        )
        return found
