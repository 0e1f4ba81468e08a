"""Guard and trainer of one job's part: forked, started again after a crash, and ended when the silo says so."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsilo.api.conditions import AgentReason
from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import DataInvalid, FileDamaged, ManifestInvalid, MethodError, PolicyRefused
from fedsilo.files.durable import make_own_directory, write_durably
from fedsilo.institution.directory import SiloDirectory
from fedsilo.local.child_processes import GRACE_SECONDS, ChildProcess, ForkServerClient
from fedsilo.local.fork_server import modules_of_job
from fedsilo.local.outcome import is_dismissed, report_lost_trainer
from fedsilo.silo.agent.component import GUARD, TRAINER, TRAINER_LOST, ComponentState
from fedsilo.silo.configuration import AGENT_FILE, SILO_FILE
from fedsilo.wire import VerifyKey

PROGRAMS = {GUARD: "fedsilo_agent.guard.__main__", TRAINER: "fedsilo_agent.trainer.__main__"}
"""The programs, by name: their packages depend on this one."""


_REASONS = {
    error.exit_code: error.reason
    for error in (ManifestInvalid, DataInvalid, PolicyRefused, FileDamaged, MethodError)
}
"""Exit code -> reason, of ends that no new start can help."""


def running(role: str) -> ComponentState:
    """Guard or trainer whose process runs."""
    return ComponentState(role, running=True, alive=True)


def ended_state(role: str, code: int, crashes: int, early: bool, seconds: float) -> ComponentState:
    """Guard or trainer that has ended for good. What it said of its end stays in the institution: it may quote data.

    :param early: whether the job is not over for it.
    :param seconds: time since it ended.
    """
    if code == 0 and early:
        return ComponentState(role, stopped=True, outcome=TRAINER_LOST)
    if code == 0:
        done = Outcome(True, Diagnosis(AgentReason.COMPLETE, f"The {role} is done."))
        return ComponentState(role, stopped=True, outcome=done, done_seconds=seconds)
    crashed = f"after {crashes} crashes " if crashes > 1 else ""
    text = f"The {role} ended {crashed}with exit code {code}; the institution has its log."
    failed = Diagnosis(_REASONS.get(code, AgentReason.BACKOFF_LIMIT_EXCEEDED), text)
    return ComponentState(role, stopped=True, outcome=Outcome(False, failed))


@dataclass
class _Ending:
    """A process that was asked to end; nobody waits for it meanwhile.

    :ivar since: when.
    :ivar killed: whether it was killed after that.
    """

    since: float
    killed: bool = False


class AgentRunner:
    """Guard and trainer of one part, as far as they are wanted. Times are seconds of a clock that never goes back.

    :param label: name of their logs.
    :param uid: of the SiloAgent.
    :param key: the one that the job knows this silo by.
    :param spec: of the job, which says after how many crashes each is given up, and what both import.
    """

    def __init__(
        self,
        directory: SiloDirectory,
        label: str,
        uid: str,
        key: VerifyKey,
        spec: FederatedJobSpec,
        server: ForkServerClient,
    ) -> None:
        self._directory, self._uid, self._server = directory, uid, server
        self._volume = directory.volume(uid)
        self._children = {
            role: ChildProcess(
                server,
                f"{label} {role}",
                PROGRAMS[role],
                arguments,
                directory.logs / f"{label}-{role}.log",
                spec.backoff_limit,
                modules=modules_of_job(spec),
            )
            for role, arguments in ((GUARD, self._guard(key)), (TRAINER, self._trainer()))
        }
        self._endings: dict[str, _Ending] = {}
        self._done: dict[str, float] = {}
        self._lost_reported = False

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of those that run."""
        return {child.name: child.pid for child in self._children.values() if child.pid is not None}

    def states(self, now: float) -> dict[str, ComponentState]:
        """What is known of both."""
        return {role: self._state(role, now) for role in self._children}

    def supervise(self, wanted: frozenset[str], now: float) -> None:
        """Start, start again or end, as far as each is wanted; returns at once, and is called again and again."""
        for role, child in self._children.items():
            if role not in wanted:
                self._ask_to_end(role, now)
            if role in self._endings:
                self._go_on_ending(role, now)
            if role in wanted and role not in self._endings:
                child.supervise()
        end = self._state(TRAINER, now).outcome
        if end is not None and not end.succeeded and not self._lost_reported:
            report_lost_trainer(self._children[TRAINER], self._volume)
            self._lost_reported = True

    def write_configuration(self, files: Mapping[str, str], policy: Mapping[str, str]) -> None:
        """Write what guard and trainer read: for the guard where no trainer sees it, and a copy for the trainer."""
        self._volume.prepare()
        for directory in (self._volume.guard, self._volume.root):
            for name, text in files.items():
                write_durably(directory / name, text.encode())
        self.write_policy(policy)

    def write_policy(self, policy: Mapping[str, str]) -> None:
        """Tell the guard the policy as it is now."""
        make_own_directory(self._current_policy_file.parent)
        content = policy[SILO_FILE].encode()
        if not self._current_policy_file.exists() or self._current_policy_file.read_bytes() != content:
            write_durably(self._current_policy_file, content)

    @property
    def _current_policy_file(self) -> Path:
        return self._volume.guard / "present" / SILO_FILE

    def _state(self, role: str, now: float) -> ComponentState:
        child = self._children[role]
        if child.pid is not None:
            return running(role)
        if child.exit_code is None:
            return ComponentState(role, stopped=True)
        since = now - self._done.setdefault(role, now)
        early = role == TRAINER and not is_dismissed(self._volume)
        return ended_state(role, child.exit_code, child.crashes, early, since)

    def _ask_to_end(self, role: str, now: float) -> None:
        if self._children[role].pid is not None and role not in self._endings:
            self._endings[role] = _Ending(now)
            self._children[role].signal(signal.SIGTERM)

    def _go_on_ending(self, role: str, now: float) -> None:
        """Take note that a process has ended that was asked to, or kill it."""
        child, ending = self._children[role], self._endings[role]
        if child.pid is None or self._server.exit_code(child.pid) is not None:
            child.pid = None
            del self._endings[role]
        elif now - ending.since > GRACE_SECONDS and not ending.killed:
            child.signal(signal.SIGKILL)
            ending.killed = True

    def _guard(self, key: VerifyKey) -> list[str]:
        retired = self._directory.retired_key_file(key)
        path = str(retired if retired.exists() else self._directory.key_file)
        proxy = ["--proxy", str(self._directory.proxy)] if self._directory.proxy.exists() else []
        institution = ["--policy", str(self._current_policy_file), "--ledgers", str(self._directory.ledgers)]
        return [*self._documents(self._volume.guard), "--key", path, *institution, *proxy]

    def _trainer(self) -> list[str]:
        root, private, logs = self._directory.root, self._directory.private_directory, self._directory.logs
        isolation = ["--isolate", "--require-isolation", "--home", str(root)]
        hidden = [f"--hide={path}" for path in (private, logs)]
        return [*self._documents(self._volume.root), "--data-root", str(root), *isolation, *hidden]

    def _documents(self, directory: Path) -> Sequence[str]:
        documents = ["--agent", str(directory / AGENT_FILE), "--silo", str(directory / SILO_FILE)]
        return [*documents, "--volume", str(self._volume.root)]
