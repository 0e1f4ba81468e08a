"""One job's part in this silo: what the hub said of it, what the silo says, and the processes that follow from both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.agent import FrozenJob
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import FileDamaged
from fedsilo.files.durable import make_own_directory, read_file, rename, sync_directory
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.institution.assess import PartState, assess
from fedsilo.institution.budgets import reserving
from fedsilo.institution.directory import RESTORE, SiloDirectory
from fedsilo.institution.processes import AgentRunner
from fedsilo.institution.rotating import is_own
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.outcome import clear_failures
from fedsilo.silo.agent.component import GUARD, TRAINER, ComponentState
from fedsilo.silo.audit_chain import FILE, AuditBroken
from fedsilo.silo.budget_figures import SpentOf
from fedsilo.silo.configuration import AGENT_FILE, SILO_FILE, configuration, current_policy
from fedsilo.silo.receipts import GrowingReceipts, receipts_document
from fedsilo.silo.volume import Volume
from fedsilo.wire import SigningKey, VerifyKey

log = logging.getLogger("fedsilo.silo")

ForkServer = Callable[[], ForkServerClient]
"""Gives what processes are forked from, which is started only when there is something to run."""

REASSESS_SECONDS = 5.0
"""Time after which a decision is looked at again although nothing changed: a policy has dates."""

_NO_PROCESSES = {role: ComponentState(role, stopped=True) for role in (GUARD, TRAINER)}

_FIELDS = {"metadata": dict, "spec": dict, "status": dict}


def read_record(directory: SiloDirectory, uid: str) -> Object | None:
    """What is on file about a part; None where there is nothing.

    :raises FileDamaged: when it is not as it was written.
    """
    path = directory.record(uid)
    found = read_with_digest(path, RESTORE, _FIELDS)
    if found is not None and found["metadata"].get("uid") != uid:
        raise FileDamaged(f"{path}: is of another SiloAgent than its directory; {RESTORE}")
    return found


class AgentRun:
    """A part as it goes on.

    :ivar record: the SiloAgent as the hub said it, with the status as this silo states it, and `gone`, when the hub
        took it back, if it did.
    """

    def __init__(self, directory: SiloDirectory, record: Object) -> None:
        self.record = record
        self._directory = directory
        self._processes: AgentRunner | None = None
        self._files = self._read_files()
        self._state: PartState | None = None
        self._basis: tuple[Any, ...] = ()
        self._faults: tuple[str, ...] = ()
        self._receipts = GrowingReceipts(directory.volume(self.uid).root)
        self._stated_receipts: tuple[int, Object | None] = (-1, None)

    @property
    def uid(self) -> str:
        """Identity of the SiloAgent."""
        return uid_of(self.record)

    @property
    def name(self) -> str:
        """Name of the SiloAgent."""
        return str(self.record["metadata"]["name"])

    @property
    def label(self) -> str:
        """What the names of its logs begin with."""
        return f"{self.name}-{self.uid[:8]}"

    @property
    def gone(self) -> bool:
        """Whether the hub asks for it no more."""
        return "gone" in self.record

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of guard and trainer."""
        return self._processes.pids if self._processes is not None else {}

    @property
    def busy(self) -> bool:
        """Whether guard or trainer are to run, or have yet to end."""
        wanted = self._state is not None and bool(self._state.wanted) and not self.gone
        return wanted or bool(self.pids)

    def hear(self, suspended: bool | None) -> None:
        """Take what the hub says now: whether it is to be suspended; None when it asks for this part no more.

        Whatever else the hub says later of a part has no effect, since the silo has decided on what was said first.
        The volume with the audit log stays: it is the institution's.
        """
        if suspended is None:
            self._write(self.record | {"gone": self.record.get("gone") or timestamp(datetime.now(UTC))})
        else:
            record = {name: value for name, value in self.record.items() if name != "gone"}
            self._write(record | {"spec": record["spec"] | {"suspend": suspended}})

    def step(
        self,
        silo: Silo,
        generation: int,
        key: SigningKey,
        clock: float,
        server: ForkServer,
        spent: SpentOf,
    ) -> None:
        """Decide, write down what was decided, and start or end what follows from it.

        :param generation: another number whenever the Silo is another.
        :param clock: seconds, of a clock that only goes forward.
        :param spent: dataset -> what is spent of its budget.
        """
        if self.gone:
            self.end(clock)
            self._state = None
            return
        states = _NO_PROCESSES if self._processes is None else self._processes.states(clock)
        basis = (generation, self.record["spec"], tuple(states.items()), int(clock / REASSESS_SECONDS))
        if self._state is None or basis != self._basis:
            if self._processes is not None and self._basis[:1] != basis[:1]:
                self._processes.write_policy(current_policy(silo))
            now, own = datetime.now(UTC), self._own_key(key)
            found = _with_key(silo, own.verify_key.to_text())
            self._state = assess(self.record, found, states, self._files, own, now, spent)
            self._basis = basis
        if self._state.wanted and self._processes is None:
            self._processes = self._begin(self._state, silo, server)
        self._note_faults(self._state.faults)
        self._state_status(self._state.status)
        if self._processes is not None:
            self._processes.supervise(self._state.wanted, clock)

    @property
    def reserves(self) -> FrozenJob | None:
        """The job, where this part is admitted or has begun, and may yet send something."""
        return reserving(self.record, bool(self.pids))

    def end(self, clock: float) -> None:
        """End guard and trainer, as far as they run; they have ended once there are no `pids`."""
        if self._processes is not None:
            self._processes.supervise(frozenset(), clock)
            if not self.pids:
                self._processes = None

    def _own_key(self, key: SigningKey) -> SigningKey:
        """The key with which this part speaks: it ends with the one that it began with, if that is still on file."""
        began_with = str((self.record["spec"].get("trust") or {}).get("publicKey"))
        if "configuration" not in status_of(self.record) or not is_own(self._directory, began_with):
            return key
        return SigningKey.load(self._directory.retired_key_file(VerifyKey.from_text(began_with)))

    def _begin(self, state: PartState, silo: Silo, server: ForkServer) -> AgentRunner:
        """What it takes to start guard and trainer: the configuration is on the disk before anything relies on it."""
        assert state.agent is not None
        volume = self._directory.volume(self.uid)
        self._inherit(volume)
        volume.prepare()
        spec = state.agent.spec.job.spec
        key = VerifyKey.from_text(state.agent.spec.trust.public_key)
        processes = AgentRunner(self._directory, self.label, self.uid, key, spec, server())
        if self._files is None:
            self._files = configuration(state.agent, silo)
        if TRAINER in state.wanted:
            clear_failures(volume)
        processes.write_configuration(self._files, current_policy(silo))
        return processes

    def _inherit(self, volume: Volume) -> None:
        """Go on with the audit log of an earlier part in the same job, which the hub has taken back.

        What a silo has answered, and how much has left, counts for the job: a hub that asks again under another
        identity gets no second answer.
        """
        if volume.root.exists():
            return
        job = job_of(self.record)["uid"]
        for path in sorted(self._directory.agents.iterdir()):
            other = None if path.name == self.uid else read_record(self._directory, path.name)
            left = self._directory.volume(path.name).root
            if other is not None and job_of(other)["uid"] == job and left.is_dir():
                log.info("SiloAgent %s: goes on with what was left of the same job", self.name)
                rename(left, volume.root)
                sync_directory(volume.root.parent)
                sync_directory(left.parent)
                return

    def _read_files(self) -> dict[str, str] | None:
        """The configuration as the guard began with it."""
        volume = self._directory.volume(self.uid)
        found = {name: read_file(volume.guard / name, RESTORE) for name in (AGENT_FILE, SILO_FILE)}
        return {name: text.decode() for name, text in found.items() if text} if all(found.values()) else None

    def _note_faults(self, faults: tuple[str, ...]) -> None:
        for fault in faults if faults != self._faults else ():
            log.error("SiloAgent %s: %s: %s", self.name, self._directory.silo_file, fault)
        self._faults = faults

    def _state_status(self, status: Object) -> None:
        receipts = self._read_receipts()
        wanted = status | ({"receipts": receipts} if receipts is not None else {})
        before = status_of(self.record)
        if wanted != before:
            if (phase := wanted.get("phase")) != before.get("phase"):
                log.info("SiloAgent %s: is %s", self.name, phase)
            self._write(self.record | {"status": wanted})

    def _read_receipts(self) -> Object | None:
        """What has left, as the hub is told; read on when the audit log has grown."""
        path = self._directory.volume(self.uid).audit / FILE
        size = path.stat().st_size if path.exists() else 0
        if size != self._stated_receipts[0]:
            try:
                self._stated_receipts = (size, receipts_document(self._receipts.read()) if size else None)
            except AuditBroken as broken:
                log.error("%s: %s", self.name, broken)  # the guard refuses every task, and says so
                self._stated_receipts = (size, self._stated_receipts[1])
        return self._stated_receipts[1]

    def _write(self, record: Object) -> None:
        if record != self.record or not self._directory.record(self.uid).exists():
            make_own_directory(self._directory.record(self.uid).parent)
            write_with_digest(self._directory.record(self.uid), record)
            self.record = record


def _with_key(silo: Silo, public_key: str) -> Silo:
    return silo.model_copy(update={"status": silo.status.model_copy(update={"public_key": public_key})})


def job_of(record: Object) -> dict[str, str]:
    """Namespace, name and uid of a part's job; each empty where the hub, whose word is kept as it came, says none."""
    job = record["spec"].get("job")
    said = job if isinstance(job, dict) else {}
    return {name: str(said.get(name, "")) for name in ("namespace", "name", "uid")}
