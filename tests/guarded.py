"""A whole job in one process with its real round engine, guards and trainers; what a network would carry is called.

    done = guarded(tmp_path / "run", manifest, tmp_path)
    done.engine.result, done.engine.history(), done.private

Unlike `tests.federate`, in which a silo's guard is one function, the guard here is the product's with all that it
keeps, so that it also answers the steps of a secure sum, and the directory of the aggregator can be verified.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from fedsilo.api.agent import SiloAgent
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.data.schema import Schema
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods import registry
from fedsilo.methods.state import State
from fedsilo.silo.context import open_context
from fedsilo.silo.personal import PersonalModel
from fedsilo.silo.runner import TaskRunner
from fedsilo.silo.secret import Secret
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import FINISH, BlobLink, SigningKey, UpdateCheck
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.trainer.loop import Trainer
from fedsilo_agent.trainer.mailbox import Mailbox
from fedsilo_aggregator.config import AggregatorConfig
from fedsilo_aggregator.startup import open_engine

M = TypeVar("M", bound=BaseModel)

UID = "00000000-0000-0000-0000-000000000000"

LOOK_SECONDS = 0.001
"""Between two looks at what another one may have done; all of them share a thread."""

PATIENCE_SECONDS = 120.0
"""Seconds after which a job that has not ended hangs."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended with a model.

    :param directory: of the aggregator.
    :param private: silo -> what it keeps of its last acknowledged reply, where it keeps anything.
    """

    engine: RoundEngine
    directory: Path
    private: Mapping[str, State]


def run_guarded(directory: Path, manifest: JobManifest, data_root: Path) -> FinishedJob:
    """Run a job to its end, in a directory like that of a local run.

    :raises FedsiloError: the job's failure.
    """
    place = RunDirectory(directory)
    place.write_inputs(manifest, UID, port=1)
    config = _read(place.aggregator / "config.json", AggregatorConfig)
    engine = open_engine(config, place.aggregator, place.secrets / "task-key.pem", data_root)
    guards = [_guard(place, silo, engine) for silo in manifest.silos]
    trainers = [SiloTrainer(place, silo, data_root) for silo in manifest.silos]
    asyncio.run(_run(engine, guards, trainers))
    if engine.failure is not None:
        raise engine.failure
    kept = {trainer.reference: trainer.mailbox.acknowledged_state() for trainer in trainers}
    return FinishedJob(
        engine, place.aggregator, {silo: state for silo, state in kept.items() if state != State()}
    )


async def _run(engine: RoundEngine, guards: Sequence[Guard], trainers: Sequence[SiloTrainer]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as parties:
        parties.create_task(_rounds(engine))
        for guard, trainer in zip(guards, trainers, strict=True):
            parties.create_task(guard.run())
            parties.create_task(trainer.run())


async def _rounds(engine: RoundEngine) -> None:
    while not engine.ended:
        engine.settle()
        engine.sweep()
        await asyncio.sleep(LOOK_SECONDS)


def check_of(place: RunDirectory, silo: Silo) -> TaskCheck:
    """The rules by which a silo's guard answers, as it is started with them."""
    own = place.volume(silo.metadata.name).guard
    return TaskCheck(_read(own / "agent.json", SiloAgent), _read(own / "silo.json", Silo))


def _guard(place: RunDirectory, silo: Silo, engine: RoundEngine) -> Guard:
    name = silo.metadata.name
    own, check = place.volume(name), check_of(place, silo)
    key = SigningKey.load(own.guard / "key.pem")
    client: Any = EngineClient(engine, str(silo), key)
    return Guard(GuardedJob(check, own, key, client, ledgers=place.ledgers(name)))


class SiloTrainer:
    """One silo's trainer, which looks for tasks as the others get on with theirs."""

    def __init__(self, place: RunDirectory, silo: Silo, data_root: Path) -> None:
        self.reference, volume = str(silo), place.volume(silo.metadata.name)
        method = registry.bind(_read(volume.root / "agent.json", SiloAgent).spec.job.spec)
        context = replace(open_context(method.spec, silo, data_root), secret=Secret(volume.secret))
        self.mailbox = Mailbox(volume, JobPlan(method).exchanges)
        self.mailbox.announce(context.signature, "none", context.schema, context.findings)
        self._inbox = volume.task
        runner, personal = TaskRunner(method, context), PersonalModel(volume.state, method, str(silo))
        self._trainer = Trainer(self.mailbox, runner, personal)

    async def run(self) -> None:
        """Answer tasks until the job ends."""
        seen: tuple[int, int] | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            told = _age(self._inbox)
            if told == seen:
                continue
            seen = told
            if self.mailbox.is_finished():
                return
            if (task := self.mailbox.pending_task()) is not None:
                self._trainer.answer(task)


def _age(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that had its name before."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path, model: type[M]) -> M:
    return model.model_validate_json(path.read_bytes())


class EngineClient:
    """A silo's aggregator, as the verbs of `AggregatorClient` on its engine."""

    def __init__(self, engine: RoundEngine, silo: str, key: SigningKey) -> None:
        self._engine, self._silo, self._key = engine, silo, key

    async def task(self, after: str, wait: float) -> bytes | None:
        """The task that follows, held until there is one."""
        if after == FINISH:
            return None
        while (sealed := self._engine.task(self._silo)) is None or sealed.id == after:
            await asyncio.sleep(LOOK_SECONDS)
        return sealed.sealed

    async def download(self, link: BlobLink, path: Path) -> None:
        """A blob that the open exchange hands out."""
        found = self._engine.blob(link.digest)
        assert found is not None, f"{link.name} is handed out and not served"
        shutil.copyfile(found, path)

    async def upload(self, task: str, path: Path, digest: str, *, new: bool) -> None:
        """A signed update, checked as the service does."""
        checker = UpdateCheck(self._engine.expected_update(task, self._silo), self._key.verify_key)
        checker.feed(path.read_bytes())
        arrived = self._engine.partial_path(task)
        shutil.copyfile(path, arrived)
        self._engine.accept(self._silo, arrived, checker.finish())

    async def announce_schema(self, content: bytes) -> None:
        """What the silo's data are called; nobody waits for the others here."""
        self._engine.announce(self._silo, Schema.from_json(content))

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        """Why there will be no update for a task."""
        self._engine.fail(self._silo, task, reason, message)
