"""All parts of a silo in jobs, on this machine: what the hub asks for is decided, started, watched and ended here.

Everything that must survive is on the disk before it has an effect, so that the process may be killed at any moment and
go on with the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.conditions import AgentPhase
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import FedsiloError
from fedsilo.hub.client import HubAgent
from fedsilo.hub.mirror import MAX_DEPTH, Mirror, is_suspended, is_too_deep
from fedsilo.institution.agent_run import AgentRun, job_of, read_record
from fedsilo.institution.budgets import BudgetReader
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.logs import bound_logs
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.local.child_processes import GRACE_SECONDS, POLL_SECONDS, ForkServerClient
from fedsilo.silo.budget_figures import SpentBudget, reserved_epsilon
from fedsilo.silo.ledger_head import HeadStore
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.wire import SigningKey

log = logging.getLogger("fedsilo.silo")

IDLE_SECONDS = 60.0
"""Time without guards and trainers after which the process that they are forked from ends, for its memory."""


LOGS_SECONDS = 1.0
"""Time between two looks at the lengths of logs."""


class Executor:
    """The parts of a silo, on file and as processes.

    :param clock: seconds, of a clock that never goes back.
    :ivar parts: by uid, those that the hub asks for, and those that have yet to end since it does no more.
    :raises FileDamaged: when a record is not as it was written.
    """

    def __init__(
        self,
        directory: SiloDirectory,
        watched: WatchedSilo,
        key: SigningKey,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._watched, self._key, self._clock = directory, watched, key, clock
        self._generation = 0
        self._server: ForkServerClient | None = None
        self._last_busy = clock()
        self._logs_due = 0.0
        self._said: dict[str, str] = {}
        self._budgets, self._audited = BudgetReader(directory), HeadStore(directory.ledgers)
        self.parts = {part.uid: part for part in _on_file(directory)}

    @property
    def silo(self) -> Silo:
        """The Silo as it is now."""
        return self._watched.silo

    def follow(self, mirror: Mirror) -> None:
        """Take what the hub asks for now; before it has said anything, everything goes on as it is."""
        if mirror.told is None:
            return
        asked = {agent.uid: agent for agent in mirror.wanted_agents().values()}
        # First: whatever begins anew goes on with what an earlier part in the same job has left.
        for uid, part in self.parts.items():
            if uid not in asked and not part.gone:
                log.info("SiloAgent %s: the hub asks for it no more", part.name)
                part.hear(None)
        for uid, agent in asked.items():
            try:
                self._hear(agent)
            except FedsiloError as error:
                self._say(uid, f"SiloAgent {agent.name}: {error}")
        self._said = {uid: text for uid, text in self._said.items() if uid in asked or uid in self.parts}

    def _hear(self, agent: HubAgent) -> None:
        if agent.uid not in self.parts:
            if is_too_deep(agent):
                self._say(
                    agent.uid,
                    f"SiloAgent {agent.name}: the hub asks for it with more than {MAX_DEPTH} lists and mappings in one "
                    "another, so nothing is done about it; ask the consortium's office who made the job",
                )
                return
            record = read_record(self._directory, agent.uid)
            self.parts[agent.uid] = AgentRun(self._directory, record or self._record(agent))
            log.info("SiloAgent %s: the hub asks for it", agent.name)
        self.parts[agent.uid].hear(is_suspended(agent))

    def step(self) -> None:
        """Decide, start and end whatever there is to; called often, and waits for nothing."""
        if self._watched.changed():
            self._generation += 1
        if self._server is not None:
            self._server.poll()
        clock = self._clock()
        # Those that are over first: another part in the same job needs what they hold.
        held: set[str] = set()
        for part in sorted(self.parts.values(), key=lambda part: not part.gone):
            if part.gone or job_of(part.record)["uid"] not in held:
                self._step(part, clock)
            if part.gone and part.pids:
                held.add(job_of(part.record)["uid"])
        # What is over is on file, where it is found if the hub asks for it again.
        self.parts = {uid: part for uid, part in self.parts.items() if not part.gone or part.pids}
        self._bound_logs(clock)
        self._rest(clock)

    def _step(self, part: AgentRun, clock: float) -> None:
        try:
            part.step(
                self.silo,
                self._generation,
                self._key,
                clock,
                self._fork_server,
                lambda dataset: self._spent_budget(dataset, part),
            )
        except FedsiloError as error:
            self._say(part.uid, f"SiloAgent {part.name}: {error}")
        else:
            self._said.pop(part.uid, None)

    def _spent_budget(self, dataset: str, part: AgentRun) -> SpentBudget:
        """What is spent of a dataset's budget when this part asks for room in it.

        :raises AuditBroken: when the ledger was changed, or has lost what an audit log knows of.
        """
        heads = self._audited.of(dataset)
        account = PrivacyLedger(self._directory.ledgers, dataset, heads).account(datetime.now(UTC))
        own = job_of(part.record)["uid"]
        jobs = {job.uid: job for other in self.parts.values() if (job := other.reserves) is not None}
        others = [job for uid, job in jobs.items() if uid != own and job.spec.data.dataset == dataset]
        budget = self.silo.spec.policy.budget_of(dataset)
        assert budget is not None, "asked for only where there is one"
        delta = budget.delta
        return SpentBudget(
            account.spent_epsilon,
            sum(reserved_epsilon(job, account.of_job(job.uid), delta) for job in others),
        )

    def privacy_budgets(self) -> Sequence[BudgetStatus]:
        """What is spent and left of each dataset's budget; one whose ledger was changed is missing."""
        try:
            records = [part.record for part in self.parts.values()]
            return tuple(self._budgets.read(records, datetime.now(UTC)))
        except FedsiloError as error:
            self._say("budgets", f"privacy budgets: {error}")
            return ()

    def statuses(self) -> dict[str, tuple[str, Object]]:
        """What the silo says of each part that the hub asks for: uid -> name and status."""
        return {
            uid: (part.name, dict(status_of(part.record)))
            for uid, part in self.parts.items()
            if not part.gone and part.record["status"]
        }

    def pending_since(self) -> list[str]:
        """Since when the parts that wait for a person were asked for, RFC 3339."""
        return [
            str(part.record["metadata"]["creationTimestamp"])
            for part in self.parts.values()
            if not part.gone and status_of(part.record).get("phase") == AgentPhase.APPROVAL_PENDING
        ]

    @property
    def busy(self) -> bool:
        """Whether there is a guard or trainer to look after."""
        return any(part.busy for part in self.parts.values())

    def pids(self) -> dict[str, int]:
        """Process ids of all that runs."""
        found = {} if self._server is None else {"fork server": self._server.pid}
        return found | {name: pid for part in self.parts.values() for name, pid in part.pids.items()}

    def end(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """End every guard and trainer, all at once, and wait for that."""
        until = self._clock() + 2 * GRACE_SECONDS
        while self._ending() and self._clock() < until:
            sleep(POLL_SECONDS)
        if self._server is not None:
            self._server.close()

    def _ending(self) -> bool:
        """Whether there is anything left that has yet to end."""
        if self._server is not None:
            self._server.poll()
        for part in self.parts.values():
            part.end(self._clock())
        return any(part.pids for part in self.parts.values())

    def _fork_server(self) -> ForkServerClient:
        if self._server is None:
            self._server = ForkServerClient(str(self._directory.root))
        return self._server

    def _bound_logs(self, clock: float) -> None:
        if clock < self._logs_due:
            return
        self._logs_due = clock + LOGS_SECONDS
        in_use = tuple(f"{part.label}-" for part in self.parts.values())
        bound_logs(self._directory.logs, lambda name: name.startswith(in_use))

    def _rest(self, clock: float) -> None:
        if self.busy:
            self._last_busy = clock
        elif self._server is not None and clock - self._last_busy > IDLE_SECONDS:
            self._server.close()

    def _record(self, agent: HubAgent) -> Object:
        metadata = {
            "name": agent.name,
            "namespace": self.silo.metadata.namespace,
            "uid": agent.uid,
            "creationTimestamp": timestamp(datetime.now(UTC)),
        }
        return {"metadata": metadata, "spec": dict(agent.spec), "status": {}}

    def _say(self, uid: str, text: str) -> None:
        """Log what is wrong with a part, once until it is something else or nothing."""
        if self._said.get(uid) != text:
            log.error("%s", text)
            self._said[uid] = text


def _on_file(directory: SiloDirectory) -> Iterator[AgentRun]:
    for uid in directory.uids():
        record = read_record(directory, uid)
        if record is not None:
            yield AgentRun(directory, record)
