"""A whole job of secure sums: the product's engine and guards' own sides, with silos that drop out as a plan says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.store import JobIdentity, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE, Exchange
from fedsilo.methods.schedule import exchange_id
from fedsilo.transforms.guard import GuardIdentity
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.secure_sum.guard import SecureSumGuardSide
from fedsilo.transforms.secure_sum.steps import ANNOUNCED, PREFIX, SHARES, STEPS
from fedsilo.transforms.transform import Signers
from fedsilo.updates.round_updates import StoredUpdates
from fedsilo.wire import Contract, Task, Tree, UpdateCheck, open_blob, open_task, task_digest
from fedsilo_agent.guard.exchanges import Schedule
from tests.federate import TASK_KEY, references, silo_key
from tests.updates import write_update

UID = "job-uid"

ANSWERS, IS_SILENT, IS_NOT_HEARD = "answers", "is silent", "is not heard"
"""What a silo does in an exchange; one that is not heard has answered, and its answer never arrives."""

Misses = Mapping[tuple[str, str], str]
"""Exchange and silo -> what it does instead of answering."""


@dataclass
class SummedJob:
    """One job and its silos.

    :param misses: of exchanges in which so many silos answer that the job goes on.
    :ivar asked: names of the exchanges that were opened, in order.
    :ivar announced: exchange -> silo -> announcement with which a sum was masked.
    :ivar secrets: silo -> names of files of secrets after each of its answers.
    """

    directory: Path
    spec: FederatedJobSpec
    misses: Misses = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    announced: dict[str, dict[str, bytes]] = field(default_factory=dict)
    secrets: dict[str, list[list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.method, self.silos = registry.bind(self.spec), references(self.spec)
        self.keys = {silo: silo_key(silo) for silo in self.silos}
        self.public_keys = {silo: key.verify_key for silo, key in self.keys.items()}
        self.engine = self.open_engine()
        self.exchanges = JobPlan(self.method).exchanges

    def open_engine(self) -> RoundEngine:
        """The aggregator's half, new or as an earlier one left it."""
        identity = JobIdentity(UID, "summed", spec_digest(self.spec), self.silos)
        context = JobContext.of(self.method, self.silos)
        workflow = Workflow(self.method, context, signers=Signers(UID, self.public_keys))
        return RoundEngine(
            JobStore(self.directory / "aggregator"), identity, workflow, TASK_KEY, self.public_keys
        )

    def run(self, restarts: Sequence[str] = ()) -> Tree:
        """Run the job to its end.

        :param restarts: exchanges in which the aggregator is started again, before and after silos' answers.
        :returns: the model.
        """
        self.run_until(None, restarts)
        assert self.engine.result is not None
        return open_blob(self.engine.result.path).tree()

    def run_until(self, exchange: str | None, restarts: Sequence[str] = ()) -> None:
        """Run the job until an exchange is open, or to its end."""
        while (current := self.engine.current_exchange) is not None:
            name = exchange_id(current.exchange)
            if name == exchange:
                return
            self.asked.append(name)
            for silo in current.round.silos:
                if name in restarts:
                    self.engine = self.open_engine()
                self.answer(silo, name)
            if name in restarts:
                self.engine = self.open_engine()
            assert self.engine.settle()
            if self.engine.failure is not None:
                raise self.engine.failure

    def plain_model(self) -> Tree:
        """The model of the same silos' updates where nothing is hidden."""
        workflow = Workflow(self.method, JobContext.of(self.method, self.silos))
        state = workflow.start()
        counted = {(line["round"], line["phase"]): line["summed"]["silos"] for line in self.engine.history()}
        for exchange in workflow.exchanges:
            if exchange.phase.step == EVALUATE:
                continue
            silos = counted[exchange.round, exchange.phase.name]
            broadcast = workflow.assign(state, exchange, silos)
            contract = workflow.contract(exchange.phase.step, {})
            paths = {silo: self.directory / "plain" / silo.rpartition("/")[2] for silo in silos}
            for silo, path in paths.items():
                path.parent.mkdir(exist_ok=True)
                self._write_plain(path, silo, exchange, contract, broadcast.state.tree("model"))
            state, _ = workflow.fold(state, exchange, StoredUpdates(paths), broadcast)
        return dict(state.tree("model"))

    def answer(self, silo: str, name: str) -> None:
        """Have a silo do in the open exchange what the plan says."""
        does = self.misses.get((name, silo), ANSWERS)
        sealed = self.engine.task(silo)
        assert sealed is not None
        if does != IS_SILENT:
            vector = self.vector(silo, open_task(sealed.sealed, TASK_KEY.verify_key), sealed.contract)
            # A guard that was started again gives the same answer to the same task.
            again = self.vector(silo, open_task(sealed.sealed, TASK_KEY.verify_key), sealed.contract)
            assert vector.tobytes() == again.tobytes()
        if does != ANSWERS:
            self.engine.fail(silo, sealed.id, "TrainerLost", "gone")
            return
        path = self.directory / "sent.update"
        write_update(
            path,
            job=UID,
            task=sealed.id,
            round=open_task(sealed.sealed, TASK_KEY.verify_key).round,
            sender=silo,
            contract=sealed.contract,
            task_digest=task_digest(sealed.sealed),
            samples=0,
            metrics={},
            blocks=[(sealed.contract.blocks[0], vector)],
            key=self.keys[silo],
        )
        check = UpdateCheck(self.engine.expected_update(sealed.id, silo), self.public_keys[silo])
        check.feed(path.read_bytes())
        self.engine.accept(silo, path, check.finish())

    def vector(self, silo: str, task: Task, contract: Contract) -> np.ndarray:
        """What the guard sends, after it has been started anew."""
        schedule, directory = Schedule(self.exchanges), self.guard_directory(silo)
        identity = GuardIdentity(
            UID, self.keys[silo], self.public_keys, schedule.exchange_of, self.exchanges, directory
        )
        side = SecureSumGuardSide(self.method, silo, identity)
        given = {link.name: self.engine.blob(link.digest) for link in task.blobs}
        messages = {
            name: {other: row.tobytes() for other, row in open_blob(path).tree().items()}
            for name, path in given.items()
            if path is not None and name.startswith(PREFIX)
        }
        if task.step == SHARES:
            self.announced[task.phase.removesuffix(".shares") + f" {task.round}"] = dict(messages[ANNOUNCED])
        if task.step in STEPS:
            vector = np.frombuffer(side.message(task, messages), np.uint8)
        else:
            assert contract.summed is not None and given["model"] is not None
            plain = self.directory / "plain.update"
            sent = open_blob(given["model"]).tree()
            self._write_plain(plain, silo, schedule.exchange_of(task), contract.summed, sent)
            vector = side.replacement_vector(task, messages, contract.summed, plain, given["model"])
        self.secrets.setdefault(silo, []).append(sorted(path.stem for path in directory.iterdir()))
        return vector

    def guard_directory(self, silo: str) -> Path:
        """Where a silo's guard has its secrets."""
        return self.directory / "guards" / silo.rpartition("/")[2]

    def _write_plain(
        self, path: Path, silo: str, exchange: Exchange, contract: Contract, model: Mapping[str, np.ndarray]
    ) -> None:
        """What the trainer of a silo answers, which follows from the silo, the exchange and the model."""
        random = np.random.default_rng(derive_seed(1, silo, exchange.phase.name, exchange.round))
        arrays = {
            name: (array + random.normal(size=array.shape)).astype(array.dtype)
            for name, array in model.items()
        }
        write_update(
            path,
            job=UID,
            task="plain",
            round=exchange.round,
            sender=silo,
            contract=contract,
            task_digest=bytes(32),
            samples=10 + self.silos.index(silo),
            metrics=dict.fromkeys(contract.metrics, 0.5),
            blocks=[(block, arrays[block.name]) for block in contract.blocks],
            key=self.keys[silo],
        )


def sums_of(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """The exchanges whose updates are summed."""
    return (exchange for exchange in exchanges if exchange.of is None)
