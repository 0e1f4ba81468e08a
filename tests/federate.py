"""A whole job in one process, without HTTP: both halves of the engine, and signed update files between them.

    silos = [silo_holding(tmp_path, "north", features, labels), ...]
    engine = federate(tmp_path / "job", spec, runners(spec, silos, tmp_path))
    model_of(engine), engine.history()

The silo's side is the agent's own: its mailbox keeps private state until an answer is acknowledged, and its guard
copies, checks and signs what the method answered.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec, MethodSpec
from fedsilo.api.silo import Silo
from fedsilo.engine.context import JobContext
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.store import JobIdentity, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError
from fedsilo.learning.devices import prepare_torch
from fedsilo.methods import registry
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.silo.context import open_context
from fedsilo.silo.release import ReleaseRules
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.silo.runner import TaskRunner
from fedsilo.silo.secret import Secret
from fedsilo.silo.volume import Volume
from fedsilo.transforms.guard import GuardPlace
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import KINDS, Contract, SigningKey, Task, UpdateCheck, open_blob, open_task, task_digest
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.signing import sign_reply
from fedsilo_agent.guard.task_source import VerifiedTask
from fedsilo_agent.trainer.mailbox import Mailbox
from tests.public_examples import with_public_data

TASK_KEY = SigningKey.generate()

MIN_SAMPLES = 1
"""Samples that the guard wants behind a per-class block, by default of jobs and silos here."""

LIMITS = ReplyLimits(MIN_SAMPLES)
"""What a silo here lets go of what its trainer says."""


def silo_key(reference: str) -> SigningKey:
    """A silo's key, the same in every run: its updates still hold after a restart."""
    return SigningKey.from_seed(hashlib.sha256(reference.encode()).digest())


class Runner(Protocol):
    """What answers a silo's tasks: a `TaskRunner`, or something simpler for a test of the engine alone."""

    def run(self, task: SiloTask, private: State) -> Reply: ...


def job_spec(
    method: str, /, silos: int | Sequence[str], rounds: int = 1, **sections: Any
) -> FederatedJobSpec:
    """A job of small vectors for a two-layer network; sections of the manifest are merged over it."""
    names = [f"s{number}" for number in range(silos)] if isinstance(silos, int) else silos
    spec: dict[str, Any] = {
        "method": {"name": method},
        "model": {"name": "mlp", "config": {"hidden": [5]}},
        "data": {"dataset": "data", "classes": 4, "inputShape": [6], "validationFraction": 0},
        "training": {"rounds": rounds, "device": "cpu"},
        "silos": {"refs": [{"namespace": "silos", "name": name} for name in names]},
        "evaluation": {"every": rounds},
        "privacy": {"minSamplesPerClass": MIN_SAMPLES},
    }
    for name, section in sections.items():
        spec[name] = spec.get(name, {}) | section
    training = spec["training"]
    enough = max(training["rounds"], training.get("warmupRounds", 0))
    spec["training"] = training | {"rounds": enough}
    valid = FederatedJobSpec.model_validate(with_public_data(spec))
    if enough == training["rounds"]:
        return valid
    # A recorded run may end in its warm-up, which no manifest may say.
    shorter = valid.training.model_copy(update={"rounds": training["rounds"]})
    return valid.model_copy(update={"training": shorter})


def bound_method(
    method: str, /, silos: int = 2, rounds: int = 1, config: Mapping[str, Any] | None = None, **sections: Any
) -> Method:
    """The method of such a job; its configuration is taken as it is, also where no manifest could say it."""
    settings = MethodSpec.model_construct(name=method, config=dict(config or {}))
    return registry.bind(job_spec(method, silos, rounds, **sections).model_copy(update={"method": settings}))


def references(spec: FederatedJobSpec) -> tuple[str, ...]:
    """`namespace/name` of the job's silos."""
    return tuple(str(ref) for ref in spec.silos.refs)


def silo_holding(directory: Path, name: str, features: np.ndarray, labels: np.ndarray) -> Silo:
    """A silo whose dataset `data` is these arrays, written to a file in `directory`."""
    np.savez(directory / f"{name}.npz", images=features, labels=labels)
    return silo_of_file(directory / f"{name}.npz", name)


def skewed_silos(directory: Path, classes_of: Mapping[str, Sequence[int]], samples: int = 12) -> list[Silo]:
    """Silos with so many samples of each of their classes; what sets a class apart is one of the six features."""
    rng = np.random.default_rng(0)
    silos = []
    for name, classes in classes_of.items():
        labels = np.repeat(classes, samples).astype(np.int64)
        features = (rng.normal(0, 0.3, (len(labels), 6)) + np.eye(6)[labels % 6]).astype(np.float32)
        silos.append(silo_holding(directory, name, features, labels))
    return silos


def silo_of_file(path: Path, name: str, features: str = "images", labels: str = "labels") -> Silo:
    """A silo whose dataset `data` is two arrays of a file; it permits every kind of payload."""
    config = {"path": str(path), "features": features, "labels": labels}
    return Silo.model_validate(
        {
            "metadata": {"namespace": "silos", "name": name},
            "spec": {
                "datasets": [{"name": "data", "loader": "npz", "config": config}],
                "policy": {"payloadKinds": list(KINDS), "minSamplesPerClass": MIN_SAMPLES},
            },
        }
    )


def runners(spec: FederatedJobSpec, silos: Iterable[Silo], root: Path) -> dict[str, TaskRunner]:
    """The real task runner of each silo, by reference."""
    method = registry.bind(spec)
    return {str(silo): TaskRunner(method, open_context(method.spec, silo, root)) for silo in silos}


def open_engine(
    directory: Path,
    spec: FederatedJobSpec,
    *,
    method: type[Method] | None = None,
    evaluation: GlobalEvaluation | None = None,
    root: Path = Path(),
) -> RoundEngine:
    """The aggregator's half over `directory`, new or as an earlier one left it.

    :param root: directory that the path of the job's initial weights starts from.
    :param method: a declaration that is not installed; otherwise the one that the job names.
    """
    prepare_torch(spec.training.threads)  # as every program that computes does first
    bound = registry.bind(spec) if method is None else method(spec, method.Config())
    initial, public = initial_weights(spec, root, directory), PublicDataset.of(bound, root)
    context = JobContext.of(bound, references(spec), initial, public=public)
    identity = JobIdentity("job-uid", "job", spec_digest(spec), context.silos)
    keys = {silo: silo_key(silo).verify_key for silo in context.silos}
    return RoundEngine(JobStore(directory), identity, Workflow(bound, context, evaluation), TASK_KEY, keys)


class LocalSilo:
    """One silo of a job in one process: what answers its tasks, its key, and the directory that guard and trainer would
    share.

    :ivar acknowledged: the last task whose update was accepted; private state counts from there.
    """

    def __init__(self, directory: Path, reference: str, runner: Runner, limits: ReplyLimits = LIMITS) -> None:
        self.reference = reference
        self.key = silo_key(reference)
        self.acknowledged: str | None = None
        self._runner = runner
        self._limits = limits
        self._volume = Volume(directory)
        self._volume.prepare()
        self._mailbox = Mailbox(self._volume, ())
        self._secret = Secret(self._volume.guard_secret)

    @property
    def private_state(self) -> State:
        """What the silo keeps since its last acknowledged answer."""
        return self._mailbox.private_state(self.acknowledged)

    def answer(self, engine: RoundEngine) -> bool:
        """Answer the open task, or report why not; whether there was one."""
        sealed = engine.task(self.reference)
        if engine.ended or sealed is None:
            return False
        try:
            update = self.sign(engine, sealed.contract, sealed.sealed)
        except FedsiloError as error:
            engine.fail(self.reference, sealed.id, error.reason, str(error))
            return True
        self.send(engine, sealed.id, update)
        return True

    def send(self, engine: RoundEngine, task: str, update: Path) -> None:
        """Have a signed update checked and accepted.

        :raises Problem: when it is refused.
        """
        checker = UpdateCheck(engine.expected_update(task, self.reference), self.key.verify_key)
        checker.feed(update.read_bytes())
        accepted = checker.finish()
        engine.accept(self.reference, update, accepted)
        self.acknowledged = task

    def sign(self, engine: RoundEngine, contract: Contract, sealed: bytes) -> Path:
        """Have the method answer a task, and the guard check and sign the answer."""
        task = open_task(sealed, TASK_KEY.verify_key)
        private = self.private_state
        reply = self._runner.run(_as_seen_by_the_method(task, engine), private)
        self._mailbox.deliver(task.task, reply, private)
        update = self._volume.outbox / f"{task.task}.update"
        drop = self._volume.drop / task.task
        answer = DroppedReply(drop, task, contract, self._volume.blobs, self._volume.outbox)
        verified = VerifiedTask(task, task_digest(sealed))
        sign_reply(answer, update, verified, self._rules(task, engine), self.key)
        return update

    def _rules(self, task: Task, engine: RoundEngine) -> ReleaseRules:
        """What its guard does to a reply, whose inbox has the job's model if tensors are compared with it."""
        method = getattr(self._runner, "method", None)
        if method is None:
            return ReleaseRules(self._limits)
        place = GuardPlace(self.reference, self._secret.generator)
        sides = [transform.in_guard(place) for transform in JobPlan(method).transforms]
        if method.spec.privacy.differential_privacy is None:
            return ReleaseRules(self._limits, sides)
        for link in task.blobs:
            path = engine.blob(link.digest)
            assert path is not None
            shutil.copyfile(path, self._volume.blobs / link.digest)
        return ReleaseRules(replace(self._limits, figures=False), sides)


def _as_seen_by_the_method(task: Task, engine: RoundEngine) -> SiloTask:
    trees = {}
    for link in task.blobs:
        path = engine.blob(link.digest)
        assert path is not None, f"task {task.task} names blob {link.name}, which is not served"
        trees[link.name] = open_blob(path).tree()
    assert engine.current_exchange is not None
    place = engine.current_exchange.exchange
    return SiloTask(
        task.step, task.phase, task.round, place.phase_round, place.phase_rounds, trees, task.settings
    )


def local_silos(
    directory: Path, answering: Mapping[str, Runner], limits: ReplyLimits = LIMITS
) -> list[LocalSilo]:
    """A silo for each runner, with directories of their own."""
    return [
        LocalSilo(directory / reference.replace("/", "."), reference, runner, limits)
        for reference, runner in answering.items()
    ]


def drive(engine: RoundEngine, silos: Sequence[LocalSilo]) -> None:
    """Let silos answer, in the order given, and rounds close, to the job's end."""
    while not engine.ended:
        answered = [silo for silo in silos if silo.answer(engine)]
        settled = engine.settle()
        engine.sweep()
        assert answered or settled, "nobody has anything to do, and the job goes on"


def federate(
    directory: Path,
    spec: FederatedJobSpec,
    answering: Mapping[str, Runner],
    *,
    method: type[Method] | None = None,
    evaluation: GlobalEvaluation | None = None,
) -> RoundEngine:
    """Run a job to its end and return its round engine.

    :param answering: silo reference -> what answers its tasks, in the order in which they answer.
    :raises FedsiloError: the job's failure.
    """
    engine = open_engine(directory / "aggregator", spec, method=method, evaluation=evaluation)
    drive(engine, local_silos(directory, answering))
    if engine.failure is not None:
        raise engine.failure
    return engine


def model_of(engine: RoundEngine) -> Tree:
    """The tensors of the job's model."""
    assert engine.result is not None
    return open_blob(engine.result.path).tree()
