"""The directories that programs open again, each with what a restart must make of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.errors import DataInvalid, FedsiloError, FileDamaged, ManifestInvalid, Problem, WorkdirConflict
from fedsilo.files.durable import append_durably
from fedsilo.files.json_files import write_json
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.executor import Executor
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.display import PlainDisplay
from fedsilo.local.progress import RunProgress
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods.interface import Exchange, Phase, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.private_state import PrivateStateStore
from fedsilo.silo.volume import Volume
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.trainer import inbox as trainer_inbox
from fedsilo_agent.trainer.loop import Trainer
from fedsilo_agent.trainer.mailbox import Mailbox
from tests.federate import drive, job_spec, local_silos, open_engine
from tests.fuzz.directories import MEMORY, Directory
from tests.integration.service.client import signature_of
from tests.integration.service.scripted import TREE
from tests.integration.service.site import federation
from tests.unit.agent.scene import TASK, Scene
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.institution import parts as institution

_SPEC = job_spec("fedavg", 3, rounds=2, participation={"minSilos": 2, "roundDeadline": "90s"})
PREVIOUS_TASK = "r00000-train-north"
REPORTED_REASONS = ("FileDamaged", "PolicyRefused", "ProtocolProblem")
_FEDERATION = federation()
_PRIVATE_STATE = State({"control": {"w": np.arange(3, dtype=np.float32)}}, {"rounds": 1})


def _make_aggregator(root: Path) -> None:
    """In the second round two silos have answered, one of them after a failure."""
    engine = open_engine(root, _SPEC)
    with TemporaryDirectory(dir=MEMORY) as folder:
        silos = local_silos(Path(folder), synthetic_runners(_SPEC))
        for silo in silos:
            silo.answer(engine)
        engine.settle()
        engine.sweep()
        engine.fail("silos/s1", "r00002-train-s1", "TrainerLost", "crashed")
        silos[0].answer(engine)
        engine.wait(10.75)
        sealed = engine.current_exchange.tasks["silos/s1"]  # type: ignore[union-attr]
        silos[1].send(engine, sealed.id, silos[1].sign(engine, sealed.contract, sealed.sealed))


def _go_on(root: Path) -> object:
    """The model, once the silos have answered what they are asked."""
    engine = open_engine(root, _SPEC)
    with TemporaryDirectory(dir=MEMORY) as folder:
        drive(engine, local_silos(Path(folder), synthetic_runners(_SPEC)))
    if engine.failure is not None:
        raise engine.failure
    assert engine.result is not None
    return engine.result.sha256


class _Method:
    """A method that keeps something in the silo, and answers every task of the same state alike."""

    def run(self, task: SiloTask, private: State) -> Reply:
        rounds = private.values.get("rounds", 0) + 1
        return Reply(dict(TREE), 10, {"loss": 0.5}, {}, State(private.trees, {"rounds": rounds}))


class _NoPersonalModel:
    def publish(self, private: State) -> None:
        pass


class ReportedError(Exception):
    """The guard has told the aggregator why there is no update."""


class Silo:
    """A silo whose guard and trainer died after the update of round 1 was signed, and before it was sent."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(dir=MEMORY)
        self._scene = Scene(Path(self._folder.name) / "run")

    def make(self, root: Path) -> None:
        """Write what they have left."""
        volume = self._volume(root)
        shutil.rmtree(volume.drop / TASK, ignore_errors=True)
        shutil.copyfile(self._scene.volume.drop / "signature.json", volume.drop / "signature.json")
        AuditLog(volume.audit).write("acknowledged", task=PREVIOUS_TASK, digest="0" * 64)
        PrivateStateStore(volume.state).store(PREVIOUS_TASK, _PRIVATE_STATE)
        with (
            mock.patch.object(self._scene.aggregator, "upload", _die),
            contextlib.suppress(ZeroDivisionError),
        ):
            asyncio.run(self._run(volume))
        assert (volume.outbox / f"{TASK}.update").exists()

    def reopen(self, root: Path) -> object:
        """The update that arrives, and the private state that follows it.

        :raises ReportedError: when a failure arrives in its place.
        """
        aggregator, volume = self._scene.aggregator, self._volume(root)
        # Nobody replaces what is damaged while the guard runs: all the time that it gets would be waited for.
        with mock.patch.object(trainer_inbox, "REPAIR_SECONDS", 0.05):
            asyncio.run(self._run(volume))
        for reason, message in aggregator.failures.values():
            assert reason in REPORTED_REASONS, f"{reason}: {message}"
            raise ReportedError(message)
        private = PrivateStateStore(volume.state).load(TASK)
        return (
            {task: set(updates) for task, updates in aggregator.uploads.items()},
            private.values,
            private.refs(),
        )

    def _volume(self, root: Path) -> Volume:
        volume = Volume(root)
        volume.prepare()
        return volume

    async def _run(self, volume: Volume) -> None:
        """Start both, as after a restart, and let them work to the job's end."""
        aggregator = self._scene.aggregator
        aggregator.uploads.clear()
        aggregator.failures.clear()
        aggregator.tasks = self._scene.tasks()
        client: Any = aggregator
        trainer = asyncio.create_task(_train(volume))
        guard = asyncio.create_task(
            Guard(GuardedJob(self._scene.check, volume, self._scene.key, client)).run()
        )
        try:
            async with asyncio.timeout(3):
                await asyncio.wait({trainer, guard}, return_when=asyncio.FIRST_EXCEPTION)
                await guard
                await trainer
        finally:
            guard.cancel()
            trainer.cancel()


async def _train(volume: Volume) -> None:
    """What the trainer's process does."""
    mailbox = Mailbox(volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])
    runner: Any = _Method()
    personal: Any = _NoPersonalModel()
    try:
        mailbox.clear()
        mailbox.announce(signature_of(TREE), "none")
        while not mailbox.is_finished():
            task = mailbox.pending_task()
            if task is not None:
                Trainer(mailbox, runner, personal).answer(task)
            await asyncio.sleep(0.001)
    except FedsiloError as error:
        mailbox.give_up(error.reason, str(error))


async def _die(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def _make_images(root: Path) -> None:
    """Two classes, one of them in folders of its own."""
    for number, name in enumerate(("cat/a.png", "cat/b.jpg", "dog/old/c.png", "dog/d.bmp")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 50 * number, np.uint8)).save(root / name)


def _load_images(root: Path) -> object:
    """Whatever images there are: which they should be, nothing says."""
    dataset = DatasetSpec.model_validate(
        {"name": "images", "loader": "imagefolder", "config": {"path": str(root)}}
    )
    data = DataSpec.model_validate({"dataset": "images", "classes": 2, "inputShape": [3, 4, 4]})
    return load(dataset, data, root=root).features.shape[1:]


def _make_run(root: Path) -> None:
    """A run in its first round, which has a model of an earlier one."""
    workdir = RunDirectory(root)
    with workdir.hold_directory(_FEDERATION, False, _space(root)) as uid:
        workdir.write_inputs(_FEDERATION, uid, 1)
    status = {"phase": "Running", "round": 1, "rounds": 2, "silos": [], "metrics": {}, "conditions": []}
    write_json(workdir.aggregator / "status.json", status)
    append_durably(workdir.aggregator / "history.jsonl", json.dumps({"round": 1, "metrics": {"accuracy": 1}}))
    (workdir.aggregator / "model.json").write_text("{}")
    for silo in _FEDERATION.silos:
        document = {"signature": signature_of(TREE).to_dict(), "isolation": "none"}
        write_json(workdir.volume(silo.metadata.name).drop / "signature.json", document)


def _resume(root: Path) -> object:
    """Whose run it is."""
    workdir = RunDirectory(root)
    with workdir.hold_directory(_FEDERATION, True, _space(root)) as uid:
        workdir.write_inputs(_FEDERATION, uid, 1)
        progress = RunProgress(_FEDERATION, workdir)
        progress.read()
        with PlainDisplay(StringIO()).showing(progress):
            json.dumps(progress.outcome(1.0))
        workdir.collect()
    return uid


def _make_institution(root: Path) -> None:
    """A silo on a machine of its own, which has admitted a job that has not begun."""
    _executor(institution.directory(root)).step()


def _reopen_institution(root: Path) -> object:
    """Whose silo it is, how far it has heard its hub, and what it has said."""
    place = SiloDirectory(root)
    if place.key_file.is_file() and not place.key_file.is_symlink():
        place.key_file.chmod(0o600)
    place.signing_key()
    return place.require_membership(), place.read_heard()["version"], _executor(place).statuses()


def _executor(place: SiloDirectory) -> Executor:
    watched = WatchedSilo(place, institution.MEMBER, institution.KEY.verify_key.to_text())
    executor = Executor(place, watched, institution.KEY)
    executor.follow(institution.mirror_of(institution.agent(suspend=True)))
    return executor


def _space(root: Path) -> DiskSpaceCheck:
    return DiskSpaceCheck(root, lambda text: None)


def directories() -> dict[str, Directory]:
    """All of them, by name."""
    silo = Silo()
    refusals = (ReportedError, FileDamaged, AuditBroken)
    # A silo goes on without private state, and a log is taken as far as it goes: nothing else says that there was more
    # (docs/security.md).
    unknown = (
        "state",
        f"state/{PREVIOUS_TASK}",
        f"state/{TASK}",
        "audit",
        "audit/log.jsonl",
    )
    without = frozenset(map(Path, unknown))
    recorded = Path("agents", institution.UID, "record.json")
    return {
        "directory of an aggregator": Directory(_make_aggregator, _go_on, (FileDamaged,)),
        "volume of a silo": Directory(silo.make, silo.reopen, refusals, without=without, own="state"),
        "audit log of a silo": Directory(silo.make, silo.reopen, refusals, within="audit", own="state"),
        "directory of a run": Directory(_make_run, _resume, (WorkdirConflict, Problem), own="aggregator"),
        "private directory of an institution": Directory(
            _make_institution, _reopen_institution, (FileDamaged, ManifestInvalid, Problem), within="private"
        ),
        "parts of an institution": Directory(
            _make_institution,
            _reopen_institution,
            (FileDamaged,),
            within="agents",
            without=frozenset({Path("agents"), recorded.parent, recorded}),
        ),
        "folder of images": Directory(_make_images, _load_images, (DataInvalid,), hostile=True),
    }
